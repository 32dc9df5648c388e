"""What brokers answer to Fetch, in sessions (KIP-227) that they may forget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from millstream.wire.records.batches import RecordData, encode_batch
from tests.sim.logs import BATCH, EVERY_MS, Logs
from tests.sim.network import Slot

_LARGEST: Final = 12
"""How many batches an answer has for a partition at most."""
_TEMPLATE: Final = encode_batch(
    [RecordData(n, 1_700_000_000_000, None, b"v") for n in range(BATCH)], partition_leader_epoch=0
)
_FIRST_SESSION_VERSION: Final = 7
_FIRST_ID_VERSION: Final = 13
_FORGOTTEN: Final = 0.01

Key = tuple[str, bytes, int]
"""A partition as a request names it: topic, topic id, number."""


@dataclass
class Session:
    """What one client fetches from one broker."""

    epoch: int = 1
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)
    ends: dict[Key, int] = field(default_factory=dict)
    """The end of each log as the client knows it."""


class Fetches:
    """Answers fetches, at once or when there are records."""

    def __init__(self, logs: Logs, nodes: list[int], *, has_sessions: bool) -> None:
        self._logs = logs
        self._world = logs.world
        self._nodes = nodes
        self._has_sessions = has_sessions
        self._sessions: dict[tuple[int, int, int], Session] = {}
        """By broker, its incarnation, and session id."""
        self._ids = 0

    def handle(self, node_id: int, request: FetchRequest, slot: Slot) -> None:
        """Find or begin the session, and answer for the partitions in it."""
        now_ms = self._world.now_ms
        key = (node_id, self._nodes[node_id], request.session_id)
        if slot.version < _FIRST_SESSION_VERSION or not self._has_sessions or request.session_epoch <= 0:
            self._sessions.pop(key, None)
            session = Session(partitions=_named(request))
            session_id = 0
            if request.session_epoch == 0 and self._has_sessions and slot.version >= _FIRST_SESSION_VERSION:
                self._ids += 1
                session_id = self._ids
                self._sessions[node_id, self._nodes[node_id], session_id] = session
            self._answer(node_id, session, session_id, slot, now_ms + request.max_wait_ms, is_full=True)
            return
        found = self._sessions.get(key)
        if found is None or self._world.chance(_FORGOTTEN):
            self._sessions.pop(key, None)
            slot.reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[]))
        elif found.epoch != request.session_epoch:
            slot.reply(FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[]))
        else:
            found.epoch += 1
            for topic in request.forgotten_topics_data:
                for number in topic.partitions:
                    found.partitions.pop((topic.topic, topic.topic_id, number), None)
            found.partitions.update(_named(request))
            until_ms = now_ms + request.max_wait_ms
            self._answer(node_id, found, request.session_id, slot, until_ms, is_full=False)

    def _answer(
        self, node_id: int, session: Session, session_id: int, slot: Slot, until_ms: int, *, is_full: bool
    ) -> None:
        """Answer at once if there is anything to tell, else when there is or when the time is up."""
        answers = {key: self._read(node_id, slot, key, each) for key, each in session.partitions.items()}
        now_ms = self._world.now_ms
        if not any(answer.records or answer.error_code for answer in answers.values()) and now_ms < until_ms:
            next_ms = min((now_ms // EVERY_MS + 1) * EVERY_MS, until_ms)
            again = (node_id, session, session_id, slot, until_ms)
            self._world.later(next_ms - now_ms, lambda: self._answer(*again, is_full=is_full))
            return
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for key, answer in answers.items():
            is_news = answer.records or answer.error_code or session.ends.get(key) != answer.high_watermark
            if is_full or is_news:
                session.ends[key] = answer.high_watermark
                topics.setdefault(key[:2], []).append(answer)
        responses = [
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=found)
            for (name, topic_id), found in topics.items()
        ]
        slot.reply(FetchResponse(session_id=session_id, responses=responses))

    def _read(self, node_id: int, slot: Slot, key: Key, wanted: FetchPartition) -> PartitionData:
        name, topic_id, number = key
        if slot.version >= _FIRST_ID_VERSION:
            name = self._logs.names.get(topic_id, "")
        end, offset = self._logs.end_offset(), wanted.fetch_offset
        error = self._logs.error(node_id, TopicPartition(name, number))
        if not name:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif not error and -1 < wanted.current_leader_epoch < self._logs.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif not error and not 0 <= offset <= end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        return PartitionData(
            partition_index=number,
            error_code=error,
            high_watermark=-1 if error else end,
            last_stable_offset=-1 if error else end,
            log_start_offset=0,
            aborted_transactions=None,
            records=b"" if error else _batches(offset, end),
        )


def _named(request: FetchRequest) -> dict[Key, FetchPartition]:
    return {
        (topic.topic, topic.topic_id, each.partition): each
        for topic in request.topics
        for each in topic.partitions
    }


def _batches(offset: int, end: int) -> bytes:
    """The batches from the one with this offset on."""
    first = offset // BATCH * BATCH
    tail = _TEMPLATE[8:]
    last = min(end, first + _LARGEST * BATCH)
    return b"".join(base.to_bytes(8, "big") + tail for base in range(first, last, BATCH))
