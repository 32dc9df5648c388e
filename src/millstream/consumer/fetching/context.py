"""FetchContext: what the parts of the fetcher share: config, positions, buffer, events, failures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count

from millstream.config import ConsumerConfig
from millstream.consumer.fetching.buffers import Buffer
from millstream.consumer.fetching.events import FetchEvent, MetadataNeeded, PositionLost
from millstream.consumer.fetching.partition_state import PartitionState, ResetStrategy
from millstream.consumer.fetching.positions import Positions
from millstream.consumer.sends import retry_delay
from millstream.errors import (
    Action,
    BrokerError,
    ErrorCode,
    LeaderNotAvailableError,
    MillstreamError,
    for_code,
)
from millstream.model import TopicPartition


class FetchContext:
    """State and helpers that all parts of the fetcher use."""

    def __init__(self, config: ConsumerConfig, chance: Callable[[], float]) -> None:
        self.config = config
        self.reset_strategy = ResetStrategy.of(config)
        self.positions = Positions(config)
        self.buffer = Buffer(self.positions)
        self.delay_ms = retry_delay(config, chance)
        self._tokens = count(1)
        self._events: list[FetchEvent] = []
        self._topics_wanted: set[str] = set()

    def next_token(self) -> int:
        return next(self._tokens)

    def tell(self, event: FetchEvent) -> None:
        self._events.append(event)

    def want_metadata(self, topics: Iterable[str]) -> None:
        self._topics_wanted.update(topics)

    def take_events(self) -> list[FetchEvent]:
        events, self._events = self._events, []
        if self._topics_wanted:
            events.append(MetadataNeeded(frozenset(self._topics_wanted)))
            self._topics_wanted.clear()
        return events

    # -- failures

    def retry_or_report(self, state: PartitionState, error: Exception, now_ms: int) -> None:
        """Do what the error's action says: try again after a back-off, or leave the error for the user."""
        if is_retriable(error):
            self.retry_later(state, error, now_ms)
        else:
            state.fail(error)
        if wants_metadata(error):
            self.want_metadata([state.partition.topic])

    def retry_later(self, state: PartitionState, error: Exception, now_ms: int) -> None:
        state.failures += 1
        state.retry(error, now_ms + self.delay_ms(state.failures))

    def reset_or_report(self, state: PartitionState, error: Exception) -> None:
        """The position is unusable: find another as auto.offset.reset says, or report ``error``."""
        strategy = self.reset_strategy
        if strategy is None:
            state.fail(error)
            return
        offset = None if state.position is None else state.position.offset
        self.tell(PositionLost(state.partition, offset, strategy))
        state.reset(strategy)

    def by_leader(self, states: Iterable[PartitionState], now_ms: int) -> dict[int, list[PartitionState]]:
        """The partitions of each leader. Where there is none, metadata is refreshed until there is."""
        groups: defaultdict[int, list[PartitionState]] = defaultdict(list)
        for state in states:
            if self.has_leader(state, now_ms):
                assert state.leader is not None
                groups[state.leader.node_id].append(state)
        return groups

    def has_leader(self, state: PartitionState, now_ms: int) -> bool:
        """Whether there is a leader to ask. If not, metadata is refreshed until there is."""
        if state.without_leader or state.leader is None:
            self.retry_or_report(state, LeaderNotAvailableError(str(state.partition)), now_ms)
            return False
        return True


def partition_error(code: int, partition: TopicPartition) -> BrokerError:
    """The error of a code, naming the partition."""
    named = for_code(code)
    unknown = f" (error code {code})" if named.code != code else ""
    return named(f"{partition}{unknown}")


def is_retriable(error: Exception) -> bool:
    """Whether to try again. A read that failed for no reason the broker could give is worth another try."""
    if isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return True
    return not isinstance(error, MillstreamError) or error.retriable


def wants_metadata(error: Exception) -> bool:
    """Whether the request may have gone to the wrong broker. A lost connection is a hint of that."""
    if isinstance(error, BrokerError):
        return error.action is Action.REFRESH_METADATA or error.code in _STALE_METADATA
    return is_retriable(error)


_STALE_METADATA = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE})
