"""One admin call: its deadline, its requests and retries, and its outcomes by item."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias, TypeVar

from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.client.cluster import BrokerInfo, Cluster
from millstream.client.targets import Target
from millstream.config import AdminConfig
from millstream.errors import (
    Action,
    BrokerError,
    ErrorCode,
    LeaderNotAvailableError,
    MillstreamError,
    MisuseError,
    NotControllerError,
    UnknownTopicOrPartitionError,
    for_code,
)
from millstream.model import TopicPartition
from millstream.wire.schema import Request, Response

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Response)

Outcome: TypeAlias = V | MillstreamError
"""The result for one item, or the error why it has none."""

Partitions: TypeAlias = str | Iterable[str | TopicPartition]
"""One topic, or any number of topics (with all their partitions) and partitions."""

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_SETTLE_S = 5.0
"""How long to wait until the brokers' metadata show a change that was made."""


class AdminCall:
    """One call of a user: everything it sends shares its deadline."""

    def __init__(self, client: Client, config: AdminConfig, timeout_s: float | None) -> None:
        self.deadline = Deadline(config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s)
        self._client = client
        self._retries = config.retries
        self._requests = BlockingCalls(client)

    # -- requests

    def send(
        self,
        target: Target,
        response_type: type[R],
        request: Request | Callable[[int], Request],
        check: Callable[[R], None] | None = None,
    ) -> R:
        """Send a request, or what a function builds for the agreed version; see ``BlockingCalls.call``."""
        build = (lambda version: request) if isinstance(request, Request) else request
        return self._requests.call(target, response_type, build, self.deadline, check)

    def each(
        self,
        items: Iterable[K],
        ask: Callable[[list[K]], Mapping[K, Outcome[V]]],
        final: Collection[int] = (),
    ) -> dict[K, V]:
        """Ask for all items, and again for those with a retriable error; raise if any has failed.

        ``ask`` returns an outcome for each item it is given. The first failure is raised after every item has
        an outcome; its ``failures`` holds all of them, by item. Codes in ``final`` are not retried.
        """
        self._client.io.check_may_wait()
        order = list(dict.fromkeys(items))
        results: dict[K, V] = {}
        failures: dict[K, MillstreamError] = {}
        left = order
        for attempt in range(1, self._retries + 2):
            retriable: dict[K, MillstreamError] = {}
            for item, outcome in ask(left).items():
                if not isinstance(outcome, MillstreamError):
                    results[item] = outcome
                elif _is_retriable(outcome) and getattr(outcome, "code", None) not in final:
                    retriable[item] = outcome
                else:
                    failures[item] = outcome
            left = list(retriable)
            if not retriable:
                break
            if not self._requests.pause(attempt, self.deadline):
                failures.update(retriable)
                break
            if any(isinstance(error, NotControllerError) for error in retriable.values()):
                self.metadata(())  # they name the controller
        _raise_failures(failures)
        return {item: results[item] for item in order if item in results}

    def each_by_leader(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Mapping[TopicPartition, Outcome[V]]],
    ) -> dict[TopicPartition, V]:
        """As ``each``, where ``ask`` gets the node id of a leader and the partitions it leads."""

        def ask_leaders(left: list[TopicPartition]) -> Mapping[TopicPartition, Outcome[V]]:
            cluster = self.metadata({topic for topic, _ in left})
            by_leader: dict[int, list[TopicPartition]] = {}
            outcomes: dict[TopicPartition, Outcome[V]] = {}
            for partition in left:
                leader = cluster.leader(*partition)
                if leader is not None:
                    by_leader.setdefault(leader.node_id, []).append(partition)
                else:
                    outcomes[partition] = _why_no_leader(cluster, partition)
            for node_id, led in by_leader.items():
                outcomes.update(ask(node_id, led))
            return outcomes

        return self.each(partitions, ask_leaders)

    # -- the cluster

    def metadata(self, topics: Iterable[str] | None) -> Cluster:
        """Fresh metadata of these topics; ``None`` stands for all topics."""
        return self._requests.refresh_metadata(topics, self.deadline)

    def partitions(self, given: Partitions) -> list[TopicPartition]:
        """The partitions given, and all those of the topics given; raises for an unknown topic."""
        entries = [given] if isinstance(given, str) else list(given)
        found = [TopicPartition(*entry) for entry in entries if not isinstance(entry, str)]
        names = sorted({entry for entry in entries if isinstance(entry, str)})
        if names:
            cluster = self.metadata(names)
            for name in names:
                info = cluster.topic(name)
                if info is None:
                    raise unknown_topic(name, cluster)
                found += [partition.topic_partition for partition in info.partitions]
        return list(dict.fromkeys(found))

    def settle(self, topics: Iterable[str], is_settled: Callable[[Cluster], bool]) -> None:
        """Wait briefly until a broker's metadata show a change, as the next call may ask any broker."""
        names = list(topics)
        brief = Deadline(min(_SETTLE_S, self.deadline.remaining_s))
        attempt = 0
        while not is_settled(self.metadata(names)):
            attempt += 1
            if not self._requests.pause(attempt, brief):
                return

    def coordinator(self, group: str) -> BrokerInfo | None:
        """The broker that was found to coordinate a group, if its address is known."""
        node_id = self._client.coordinators.known(group)
        return None if node_id is None else self._client.cluster.brokers.get(node_id)

    def coordinator_outcome(
        self, group: str, code: int, what: str, message: str | None = None
    ) -> Outcome[None]:
        """The outcome of a code from a group's coordinator, which is looked up again if it has moved."""
        outcome = outcome_of(None, code, what, message)
        if isinstance(outcome, BrokerError) and outcome.action is Action.FIND_COORDINATOR:
            self._client.submit(lambda: self._client.coordinators.forget(group))
        return outcome


def _is_retriable(error: MillstreamError) -> bool:
    """Whether to ask again. To an admin, a topic that does not exist is an answer."""
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


def outcome_of(value: V, code: int, what: str, message: str | None = None) -> Outcome[V]:
    """``value`` if ``code`` is 0, else its error, about ``what`` and with the broker's own message."""
    if not code:
        return value
    if message and what.rsplit(maxsplit=1)[-1] in message:
        return for_code(code)(message)
    return for_code(code)(f"{what}: {message}" if message else what)


def by_topic(values: Iterable[tuple[TopicPartition, V]]) -> dict[str, list[V]]:
    """Values of partitions as requests group them: a list for each topic."""
    grouped: dict[str, list[V]] = {}
    for (topic, _), value in values:
        grouped.setdefault(topic, []).append(value)
    return grouped


def names_of(given: str | Iterable[str], what: str = "topic") -> list[str]:
    """One name or many, as a list without repetitions."""
    names = [given] if isinstance(given, str) else list(dict.fromkeys(given))
    for name in names:
        _check_name(name, what)
    return names


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name:
        raise MisuseError(f"{name!r} is not the name of a {what}")


def _raise_failures(failures: Mapping[K, MillstreamError]) -> None:
    """Raise the first, with a note on each of the others; all of them are its ``failures``, by item."""
    if not failures:
        return
    first, *others = failures.values()
    for other in others:
        first.add_note(f"also: {other}")
    first.failures = dict(failures)  # type: ignore[attr-defined]
    raise first
