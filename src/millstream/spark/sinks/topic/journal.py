"""The journal: progress of each source partition, in the compacted topic ``NAME_progress``.

It has one partition; keys and values are JSON:

| key | value |
|-|-|
| identity, output, group, topic, partition, a random word | which producer id this partition's records have |
| progress, output, group, topic, partition | ``Entry`` |
| lost, output, group, topic, partition, start, end, reason, topic id | when it was noticed |

``output`` is the id of the output topic: a recreated one has no progress. No two identities have the same
key, so compaction keeps all of them, and the first one counts for every driver.
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
    """Where the next record of a source partition goes in the output."""

    end: int
    """The output offset after its last record: what a dead cycle wrote is at or after this."""
    sequence: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The state of a source partition."""

    producer_id: int
    epoch: int
    partition: int
    """The partition of the output: chosen once, and kept when partitions are added."""
    sequence: int
    """The sequence number of the next entry in the journal."""
    rows: OutputPosition
    rejected: OutputPosition
    progress: Progress | None = None
    cycle_id: str = ""
    first_epoch: int = 0
    """The first epoch whose records still count: what older epochs wrote was loaded again since."""
    word: str = ""
    """Random: tells an entry from another that the broker took for its duplicate."""

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)

    def in_new_epoch(self, *, goes_on: bool = False) -> Entry:
        """The entry with the next epoch: sequence numbers restart, and writers of older epochs are fenced.

        ``goes_on``: records of the current epoch still count, as they are not loaded again.
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
    """The journal of one output and one group; ``refresh`` reads it to its end."""

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
        """Read what was written since the last call."""
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
            start, end, reason, *topic_id = more  # earlier versions kept no topic ids
            at = datetime.fromisoformat(value["noticed_at"])
            lost = LostRange(topic, partition, start, end, Loss(reason), at, *topic_id)
            self.lost.setdefault(json.dumps(key), lost)

    def entry(self, where: TopicPartition) -> Entry | None:
        """The state of a partition: without progress if it only has an identity, None without one."""
        return self.entries.get(where) or self.identities.get(where)

    def progress(self, where: TopicPartition) -> Progress | None:
        entry = self.entries.get(where)
        return None if entry is None else entry.progress

    def has(self, entry: Entry) -> bool:
        """Whether exactly this entry was written, whatever came after it."""
        return entry.word in self._words

    def identify(self, where: TopicPartition, first: Entry) -> Entry:
        """Write an identity for a partition; returns the first one written, which counts."""
        key = ["identity", *self._scope, *where, uuid.uuid4().hex]
        self._log.append(self._where, [_record(key, first.to_json())])
        self.refresh()
        if where not in self.identities:
            raise SinkError(f"{self._where.topic}: a record that the broker acknowledged cannot be read")
        return self.identities[where]

    def write(self, where: TopicPartition, before: Entry, after: Entry, lost: list[LostRange]) -> None:
        """Append an entry and its lost ranges, numbered after ``before``; raises like ``append``."""
        records = [
            _record(self._lost_key(each), {"noticed_at": each.noticed_at.isoformat()}) for each in lost
        ]
        records.append(_record(["progress", *self._scope, *where], after.to_json()))
        self._log.append(self._where, records, before.identity, before.sequence)

    def _lost_key(self, lost: LostRange) -> list[Any]:
        offsets = [lost.topic, lost.partition, lost.start, lost.end]
        return ["lost", *self._scope, *offsets, lost.reason.value, lost.topic_id]


def _record(key: list[Any], value: dict[str, Any]) -> OutputRecord:
    return OutputRecord(json.dumps(key).encode(), json.dumps(value).encode())
