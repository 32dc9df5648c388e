"""What all admin calls share: the client, deadlines, and how results for many items become one answer or
error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias, TypeVar

from millstream.client.backoff import Backoff
from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.chance import chance
from millstream.client.client import Client
from millstream.client.cluster import Cluster
from millstream.config import AdminConfig
from millstream.errors import (
    BrokerError,
    ClosedError,
    ErrorCode,
    LeaderNotAvailableError,
    MillstreamError,
    MisuseError,
    NotControllerError,
    UnknownTopicOrPartitionError,
    for_code,
)
from millstream.model import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

Outcome: TypeAlias = V | MillstreamError
"""What became of one item: its result, or why it has none."""

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_SETTLE_S = 5.0
"""How long to wait for what was changed to be seen by the brokers; the change itself is made."""


class AdminSession:
    """The base of the families of admin calls."""

    def __init__(self, config: AdminConfig) -> None:
        self._config = config
        self._client = Client(config)
        self._calls = BlockingCalls(self._client)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def _deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline(self._config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s)

    def _each(
        self,
        items: Iterable[K],
        deadline: Deadline,
        ask: Callable[[list[K]], Mapping[K, Outcome[V]]],
        final: Collection[int] = (),
    ) -> dict[K, V]:
        """Ask for all items, and again for those whose error may pass; raise when the others have failed.

        ``ask`` answers for each item that it is given. The first failure is raised, after everything else was
        done; it has all of them as ``failures``, by item. Errors with a code of ``final`` are not repeated.
        """
        self._client.io.check_may_wait()
        order = list(dict.fromkeys(items))
        results: dict[K, V] = {}
        failures: dict[K, MillstreamError] = {}
        left = order
        for attempt in range(1, self._config.retries + 2):
            passing: dict[K, MillstreamError] = {}
            for item, outcome in ask(left).items():
                if not isinstance(outcome, MillstreamError):
                    results[item] = outcome
                elif _may_pass(outcome) and getattr(outcome, "code", None) not in final:
                    passing[item] = outcome
                else:
                    failures[item] = outcome
            left = list(passing)
            if not passing:
                break
            if not self._pause(attempt, deadline):
                failures.update(passing)
                break
            if any(isinstance(error, NotControllerError) for error in passing.values()):
                self._calls.refresh_metadata((), deadline)  # which name the controller
        raise_failures(failures)
        return {item: results[item] for item in order if item in results}

    def _pause(self, attempt: int, deadline: Deadline) -> bool:
        delay_s = self._backoff.delay_ms(attempt, chance()) / 1000
        if delay_s >= deadline.remaining_s:
            return False
        if self._client.closing.wait(delay_s):
            raise ClosedError
        return True

    def _leaders(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, MillstreamError]]:
        """Partitions by the broker that leads them, and why some have none."""
        wanted = list(partitions)
        cluster = self._calls.refresh_metadata({topic for topic, _ in wanted}, deadline)
        by_leader: dict[int, list[TopicPartition]] = {}
        missing: dict[TopicPartition, MillstreamError] = {}
        for partition in wanted:
            leader = cluster.leader(*partition)
            if leader is not None:
                by_leader.setdefault(leader.node_id, []).append(partition)
            else:
                missing[partition] = _why_no_leader(cluster, partition)
        return by_leader, missing

    def _all_partitions(self, topics: Iterable[str], deadline: Deadline) -> list[TopicPartition]:
        """Every partition of these topics; raises for a topic that is not there."""
        names = sorted(set(topics))
        cluster = self._calls.refresh_metadata(names, deadline)
        found: list[TopicPartition] = []
        for name in names:
            info = cluster.topic(name)
            if info is None:
                raise unknown_topic(name, cluster)
            found += [partition.topic_partition for partition in info.partitions]
        return found

    def _settle(
        self, topics: Iterable[str], deadline: Deadline, is_settled: Callable[[Cluster], bool]
    ) -> None:
        """Wait a little until a broker sees what was changed, as the next call may ask any of them."""
        names = list(topics)
        brief = Deadline(min(_SETTLE_S, deadline.remaining_s))
        attempt = 0
        while not is_settled(self._calls.refresh_metadata(names, deadline)):
            attempt += 1
            if not self._pause(attempt, brief):
                return


def _may_pass(error: MillstreamError) -> bool:
    """Whether to ask again. A topic that is not there is an answer here, not something to wait for."""
    return isinstance(error, BrokerError) and error.retriable and error.code not in _GONE


def _why_no_leader(cluster: Cluster, partition: TopicPartition) -> MillstreamError:
    info = cluster.topic(partition.topic)
    if info is None:
        return unknown_topic(partition.topic, cluster)
    if info.partition(partition.partition) is None:
        return UnknownTopicOrPartitionError(
            f"topic {partition.topic} has the partitions 0 to {len(info.partitions) - 1}, "
            f"not {partition.partition}"
        )
    return LeaderNotAvailableError(f"{partition}")


def unknown_topic(name: str, cluster: Cluster) -> MillstreamError:
    """Why a topic is not in the metadata."""
    error = cluster.errors.get(name)
    return error if error is not None else UnknownTopicOrPartitionError(f"topic {name}")


def error_of(code: int, what: str, message: str | None = None) -> MillstreamError:
    """The error of a code: what it is about, and what the broker said of it."""
    if message and what.rsplit(maxsplit=1)[-1] in message:
        return for_code(code)(message)
    return for_code(code)(f"{what}: {message}" if message else what)


def raise_failures(failures: Mapping[K, MillstreamError]) -> None:
    """Raise the first, with a note on each of the others; all of them are its ``failures``, by item."""
    if not failures:
        return
    first, *others = failures.values()
    for other in others:
        first.add_note(f"also: {other}")
    first.failures = dict(failures)  # type: ignore[attr-defined]
    raise first


def names_of(given: str | Iterable[str], what: str = "topic") -> list[str]:
    """One name or many, as a list without repetitions."""
    names = [given] if isinstance(given, str) else list(dict.fromkeys(given))
    for name in names:
        _check_name(name, what)
    return names


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name:
        raise MisuseError(f"{name!r} is not the name of a {what}")
