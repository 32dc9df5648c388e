"""The topic beside the output, ``NAME_progress``: how far each source partition has come. One partition,
compacted; keys and values are JSON.

| key | value |
|-|-|
| identity, output, group, topic, partition, a random word | which producer id this partition's records have |
| progress, output, group, topic, partition | ``Entry`` |
| lost, output, group, topic, partition, start, end, reason | when it was noticed |

``output`` is the id of the output topic: one that was deleted and made again has no progress. No two
identities have the same key, so all of them stay, and the first one counts for everybody, whoever wrote it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from millstream.model import TopicPartition
from millstream.spark.sinks.base import Loss, LostRange, Progress, SinkError
from millstream.spark.sinks.topic.log import OutputRecord, ProducerIdentity, TopicLog


@dataclass(frozen=True, slots=True)
class OutputPosition:
    """Where the next record of a source partition goes."""

    end: int
    """The output's offset behind its last one: what a cycle that died has written lies after it."""
    sequence: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a source partition stands."""

    producer_id: int
    epoch: int
    partition: int
    """Of the output: chosen once, and kept when partitions are added."""
    sequence: int
    """Of the next entry here."""
    rows: OutputPosition
    rejected: OutputPosition
    progress: Progress | None = None
    cycle_id: str = ""
    first_epoch: int = 0
    """Since when its records follow each other: what an older epoch wrote has been read again since."""
    word: str = ""
    """A random one: tells an entry from one that was taken for its repetition."""

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    def in_new_epoch(self, *, goes_on: bool = False) -> Entry:
        """The numbers begin again, and whoever writes in the epoch before is refused.

        ``goes_on``: what was written in that one is not read again.
        """
        zero = replace(self.rows, sequence=0), replace(self.rejected, sequence=0)
        first = self.first_epoch if goes_on else self.epoch + 1
        return replace(
            self, epoch=self.epoch + 1, first_epoch=first, sequence=0, rows=zero[0], rejected=zero[1]
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Entry:
        progress = value["progress"]
        return cls(
            **value
            | {"rows": OutputPosition(**value["rows"]), "rejected": OutputPosition(**value["rejected"])}
            | {"progress": None if progress is None else Progress(**progress)}
            | {"first_epoch": value.get("first_epoch", value["epoch"])}
        )


class Journal:
    """What the progress topic says about one output and one group; ``refresh`` reads on to its end."""

    def __init__(self, log: TopicLog, topic: str, output_id: str, group_id: str) -> None:
        self._log = log
        self._where = TopicPartition(topic, 0)
        self._scope = [output_id, group_id]
        self._position = 0
        self._words: set[str] = set()
        self.identities: dict[TopicPartition, Entry] = {}
        self.entries: dict[TopicPartition, Entry] = {}
        self.lost: dict[str, LostRange] = {}
        self.others: dict[str, set[str]] = {}
        """Other groups that have progress in this output, by topic."""

    def refresh(self) -> None:
        """Read what has been written since the last time."""
        for record in self._log.read(self._where, self._position, ("offset", "key", "value")):
            self._position = record["offset"] + 1
            if record["key"] is not None and record["value"] is not None:
                self._apply(json.loads(record["key"]), json.loads(record["value"]))

    def _apply(self, key: list[Any], value: dict[str, Any]) -> None:
        kind, output_id, group_id, topic, partition, *more = key
        if [output_id, group_id] != self._scope:
            if output_id == self._scope[0] and kind == "progress":
                self.others.setdefault(topic, set()).add(group_id)
            return
        where = TopicPartition(topic, partition)
        if kind == "identity":
            self.identities.setdefault(where, Entry.from_json(value))
        elif kind == "progress":
            self.entries[where] = entry = Entry.from_json(value)
            self._words.add(entry.word)
        elif kind == "lost":
            start, end, reason = more
            at = datetime.fromisoformat(value["noticed_at"])
            self.lost.setdefault(json.dumps(key), LostRange(topic, partition, start, end, Loss(reason), at))

    def entry(self, where: TopicPartition) -> Entry | None:
        """Where a partition stands; without progress where it only has an identity, None without one."""
        return self.entries.get(where) or self.identities.get(where)

    def progress(self, where: TopicPartition) -> Progress | None:
        entry = self.entries.get(where)
        return None if entry is None else entry.progress

    def has(self, entry: Entry) -> bool:
        """Whether this very entry was written, whatever came after it."""
        return entry.word in self._words

    def identify(self, where: TopicPartition, first: Entry) -> Entry:
        """Give a partition its identity; returns the one that counts."""
        key = ["identity", *self._scope, *where, uuid.uuid4().hex]
        self._log.append(self._where, [_record(key, first.to_json())])
        self.refresh()
        if where not in self.identities:
            raise SinkError(f"{self._where.topic}: what the broker said was written cannot be read")
        return self.identities[where]

    def write(self, where: TopicPartition, before: Entry, after: Entry, lost: list[LostRange]) -> None:
        """Append an entry, and lost ranges with it, as what follows ``before``; raises as ``append`` does."""
        records = [
            _record(self._lost_key(each), {"noticed_at": each.noticed_at.isoformat()}) for each in lost
        ]
        records.append(_record(["progress", *self._scope, *where], after.to_json()))
        self._log.append(self._where, records, before.identity, before.sequence)

    def _lost_key(self, lost: LostRange) -> list[Any]:
        return ["lost", *self._scope, lost.topic, lost.partition, lost.start, lost.end, lost.reason.value]


def _record(key: list[Any], value: dict[str, Any]) -> OutputRecord:
    return OutputRecord(json.dumps(key).encode(), json.dumps(value).encode())
