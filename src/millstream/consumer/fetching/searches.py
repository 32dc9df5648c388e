"""Offset searches of users: offsets_for_times, beginning_offsets and end_offsets, of any partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from millstream.consumer.fetching.context import FetchContext, is_retriable, partition_error, wants_metadata
from millstream.consumer.fetching.events import OffsetsFound, OffsetsNotFound
from millstream.consumer.fetching.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetQuery,
    ask_offsets,
    read_offsets,
)
from millstream.consumer.sends import Send
from millstream.errors import ErrorCode, LeaderNotAvailableError, MillstreamTimeoutError, UnknownServerError
from millstream.model import OffsetAndTimestamp, TopicPartition
from millstream.wire.messages.offsets import ListOffsetsPartitionResponse, ListOffsetsResponse


@dataclass(slots=True)
class _Open:
    """A partition whose offset is still being searched for."""

    timestamp: int
    busy: bool = False
    failures: int = 0
    retry_at_ms: int = 0
    error: Exception | None = None


@dataclass(slots=True)
class _OffsetSearch:
    number: int
    deadline_ms: int
    open: dict[TopicPartition, _Open]
    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)


class OffsetSearches:
    """Each search ends with one event: OffsetsFound for all of its partitions, or OffsetsNotFound.

    Leaders are asked in parallel, and only what failed is asked again, until the deadline.
    """

    def __init__(self, context: FetchContext) -> None:
        self._context = context
        self._numbers = count(1)
        self._searches: dict[int, _OffsetSearch] = {}
        self._in_flight: dict[int, tuple[int, list[TopicPartition]]] = {}

    def start(self, timestamps: Mapping[TopicPartition, int], deadline_ms: int) -> int:
        """Search for these timestamps; returns the number that the event will carry."""
        number = next(self._numbers)
        open_ = {partition: _Open(timestamp) for partition, timestamp in timestamps.items()}
        self._searches[number] = _OffsetSearch(number, deadline_ms, open_)
        self._finish_if_done(self._searches[number])
        return number

    def poll(self, now_ms: int) -> list[Send]:
        sends: list[Send] = []
        for search in list(self._searches.values()):
            if now_ms >= search.deadline_ms:
                self._give_up(search, _timed_out(search))
            else:
                sends += self._ask(search, now_ms)
        return sends

    def next_wake_ms(self, now_ms: int) -> int | None:
        times = [search.deadline_ms for search in self._searches.values()]
        times += [one.retry_at_ms for search in self._searches.values() for one in search.open.values()]
        return min((time for time in times if time > now_ms), default=None)

    def owns(self, token: int) -> bool:
        return token in self._in_flight

    def receive(self, token: int, response: ListOffsetsResponse, now_ms: int) -> None:
        number, asked = self._in_flight.pop(token)
        search = self._searches.get(number)
        if search is None:
            return
        answers = dict(read_offsets(response))
        for partition in asked:
            search.open[partition].busy = False
            self._settle(search, partition, answers.get(partition), now_ms)
        self._finish_if_done(search)

    def failed(self, token: int, error: Exception, now_ms: int) -> None:
        number, asked = self._in_flight.pop(token)
        search = self._searches.get(number)
        if search is None:
            return
        for partition in asked:
            search.open[partition].busy = False
            self._retry_or_give_up(search, partition, error, now_ms)

    def _ask(self, search: _OffsetSearch, now_ms: int) -> list[Send]:
        by_leader: defaultdict[int, dict[TopicPartition, OffsetQuery]] = defaultdict(dict)
        for partition, one in search.open.items():
            if one.busy or now_ms < one.retry_at_ms:
                continue
            leader = self._context.positions.leader(partition)
            if leader is None:
                known = (
                    self._context.positions.cluster.errors if one.failures else {}
                )  # once it was refreshed
                missing = known.get(partition.topic) or LeaderNotAvailableError(f"no leader of {partition}")
                self._retry_or_give_up(search, partition, missing, now_ms)
            else:
                by_leader[leader.node_id][partition] = OffsetQuery(one.timestamp, leader.epoch)
        sends = []
        for node_id, questions in by_leader.items():
            token = self._context.next_token()
            self._in_flight[token] = (search.number, list(questions))
            for partition in questions:
                search.open[partition].busy = True
            sends.append(ask_offsets(token, node_id, questions, self._context.config))
        return sends

    def _settle(
        self,
        search: _OffsetSearch,
        partition: TopicPartition,
        answer: ListOffsetsPartitionResponse | None,
        now_ms: int,
    ) -> None:
        wanted = search.open[partition].timestamp
        if answer is None:
            error: Exception = UnknownServerError(f"{partition} was not answered")
            self._retry_or_give_up(search, partition, error, now_ms)
        elif answer.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:  # too old to have timestamps
            self._found(search, partition, None)
        elif answer.error_code != ErrorCode.NONE:
            error = partition_error(answer.error_code, partition)
            self._retry_or_give_up(search, partition, error, now_ms)
        elif answer.offset >= 0:
            epoch = answer.leader_epoch if answer.leader_epoch >= 0 else None
            self._found(search, partition, OffsetAndTimestamp(answer.offset, answer.timestamp, epoch))
        elif wanted in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            error = UnknownServerError(f"{partition}: no offset was named")
            self._retry_or_give_up(search, partition, error, now_ms)
        else:
            self._found(search, partition, None)

    def _found(
        self, search: _OffsetSearch, partition: TopicPartition, offset: OffsetAndTimestamp | None
    ) -> None:
        one = search.open.pop(partition)
        search.found[partition] = offset
        state = self._context.positions.get(partition)
        if state is not None and offset is not None and one.timestamp == LATEST_TIMESTAMP:
            if self._context.config.read_committed:
                state.last_stable_offset = offset.offset
            else:
                state.high_watermark = offset.offset

    def _retry_or_give_up(
        self, search: _OffsetSearch, partition: TopicPartition, error: Exception, now_ms: int
    ) -> None:
        if wants_metadata(error):
            self._context.want_metadata([partition.topic])
        if not is_retriable(error):
            self._give_up(search, error)
            return
        one = search.open[partition]
        one.error = error
        one.failures += 1
        one.retry_at_ms = now_ms + self._context.delay_ms(one.failures)

    def _give_up(self, search: _OffsetSearch, error: Exception) -> None:
        if self._searches.pop(search.number, None) is not None:
            self._context.tell(OffsetsNotFound(search.number, error))

    def _finish_if_done(self, search: _OffsetSearch) -> None:
        if not search.open:
            del self._searches[search.number]
            self._context.tell(OffsetsFound(search.number, search.found))


def _timed_out(search: _OffsetSearch) -> MillstreamTimeoutError:
    """Says which partitions are missing, and what the last try said."""
    named = ", ".join(str(partition) for partition in sorted(search.open))
    causes = {str(one.error) for one in search.open.values() if one.error is not None}
    because = f" ({'; '.join(sorted(causes))})" if causes else ""
    return MillstreamTimeoutError(f"the offsets of {named} were not found in time{because}")
