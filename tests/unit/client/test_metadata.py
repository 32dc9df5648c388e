"""When metadata are asked for: the clock and the broker are the test's."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from millstream.client.cluster import Cluster
from millstream.client.metadata import Metadata
from millstream.config import AdminConfig
from millstream.errors import ClosedError, ErrorCode, MillstreamError, NetworkError, UnsupportedVersionError
from millstream.net.reactor import Timer
from millstream.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class VirtualReactor:
    """Time and timers, without anything else."""

    def __init__(self) -> None:
        self.time_ms = 0
        self._timers: list[Timer] = []

    def now_ms(self) -> int:
        return self.time_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(deadline_ms, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def advance(self, by_ms: int) -> None:
        """Let time pass, and every timer ring when it is due."""
        end_ms = self.time_ms + by_ms
        while self._timers and self._timers[0].deadline_ms <= end_ms:
            timer = heapq.heappop(self._timers)
            self.time_ms = max(self.time_ms, timer.deadline_ms)
            if timer.callback is not None:
                timer.callback()
        self.time_ms = end_ms


class Bench:
    """Metadata with a broker that answers when told to."""

    def __init__(self, **options: Any) -> None:
        self.reactor = VirtualReactor()
        self.sent: list[MetadataRequest] = []
        self.waiting: list[tuple[Callable[[MetadataResponse], None], Callable[[MillstreamError], None]]] = []
        self.updates: list[Cluster] = []
        self.can_wait = False
        """Of the last request."""
        config = AdminConfig.from_settings(
            {"bootstrap_servers": "host:1", "metadata_max_age_ms": 10_000, "retry_backoff_ms": 100},
            {"metadata_recovery_strategy": options.pop("strategy", None)},
        )
        self.metadata = Metadata(
            self.reactor,  # type: ignore[arg-type]
            config,
            self._send,
            self.updates.append,
            auto_create_topics=options.pop("auto_create_topics", True),
            **options,
        )

    def _send(
        self, request_type: Any, build: Any, on_response: Any, on_failure: Any, *, can_wait: bool
    ) -> None:
        self.sent.append(build(13))
        self.can_wait = can_wait
        self.waiting.append((on_response, on_failure))

    def answer(self, code: int = 0, leader: int = 1, **fields: Any) -> None:
        """Answer the request on its way with what it asks for."""
        on_response, _ = self.waiting.pop(0)
        topics = [
            MetadataResponseTopic(
                error_code=code,
                name=topic.name,
                partitions=[]
                if code
                else [
                    MetadataResponsePartition(
                        error_code=0, partition_index=0, leader_id=leader, replica_nodes=[1], isr_nodes=[1]
                    )
                ],
            )
            for topic in self.sent[-1].topics or ()
        ]
        brokers = [MetadataResponseBroker(node_id=1, host="host", port=1)]
        on_response(MetadataResponse(brokers=brokers, topics=topics, **fields))

    def fail(self, error: MillstreamError) -> None:
        _, on_failure = self.waiting.pop(0)
        on_failure(error)

    @property
    def asked(self) -> list[list[str] | None]:
        return [
            None if request.topics is None else [topic.name or "" for topic in request.topics]
            for request in self.sent
        ]


def test_askers_share_the_next_request() -> None:
    bench = Bench()
    told: list[Any] = []
    bench.metadata.refresh(["a"], told.append)
    bench.metadata.refresh(["b"], told.append)
    bench.metadata.refresh(["c"], told.append)
    assert bench.asked == [["a"]]
    bench.answer()
    assert told == [None], "the others asked after the first request was sent"
    assert bench.asked[1:] == [["b", "c"]]
    bench.answer()
    assert told == [None, None, None]
    assert set(bench.metadata.cluster.topics) == {"a", "b", "c"}


def test_an_answer_on_its_way_will_do_for_topics_that_nobody_knows_yet() -> None:
    bench = Bench()
    bench.metadata.track(["a"])
    bench.metadata.refresh(["a"])
    bench.answer()
    bench.reactor.advance(200)
    assert bench.asked == [["a"]]
    bench.metadata.refresh(["a"])
    bench.metadata.refresh(["a"])
    bench.metadata.refresh(["b"])
    bench.answer()
    bench.reactor.advance(200)
    assert bench.asked[1:] == [["a"], ["a", "b"]], "what is known may have changed after it was asked for"


def test_who_asks_for_all_topics_gets_all() -> None:
    bench = Bench()
    bench.metadata.refresh(())
    bench.metadata.refresh(["a"])
    bench.metadata.refresh(None)
    bench.answer()
    bench.reactor.advance(200)
    assert bench.asked == [[], None]


def test_asking_again_without_somebody_waiting_keeps_its_distance() -> None:
    bench = Bench()
    bench.metadata.track(["a"])
    bench.answer()
    for _ in range(20):
        bench.metadata.refresh_tracked()
    assert len(bench.sent) == 1
    bench.reactor.advance(120)
    assert bench.asked[1:] == [["a"]], "twenty wishes are one request"
    bench.answer()
    bench.metadata.refresh(["a"], lambda error: None)
    assert len(bench.sent) == 3, "but whoever waits for the answer is served at once"


def test_failures_are_repeated_with_growing_distance() -> None:
    bench = Bench()
    told: list[Any] = []
    bench.metadata.refresh(["a"], told.append)
    times = []
    for _ in range(5):
        times.append(bench.reactor.now_ms())
        bench.fail(NetworkError("gone"))
        before = len(bench.sent)
        while len(bench.sent) == before:
            bench.reactor.advance(1)
    gaps = [second - first for first, second in itertools.pairwise(times)]
    assert gaps == sorted(gaps) and gaps[-1] > 4 * gaps[0]
    assert isinstance(bench.metadata.last_error, NetworkError)
    bench.answer()
    assert told == [None]
    assert bench.metadata.last_error is None


def test_errors_that_will_not_pass_are_told() -> None:
    bench = Bench()
    told: list[Any] = []
    bench.metadata.refresh(["a"], told.append)
    error = UnsupportedVersionError("too old")
    bench.fail(error)
    assert told == [error]


def test_tracked_topics_are_refreshed_by_age() -> None:
    bench = Bench()
    bench.metadata.track(["a", "b"])
    bench.answer()
    bench.reactor.advance(9_999)
    assert len(bench.sent) == 1
    bench.reactor.advance(2)
    assert bench.asked[-1] == ["a", "b"]


def test_only_what_has_grown_old_can_wait() -> None:
    bench = Bench()
    bench.metadata.track(["a"])
    assert not bench.can_wait
    bench.answer()
    bench.reactor.advance(10_001)
    assert bench.can_wait
    bench.answer()
    bench.reactor.advance(9_999)
    bench.metadata.refresh_tracked()
    assert not bench.can_wait, "something was wrong"
    bench.metadata.refresh_tracked(can_wait=True)
    bench.metadata.refresh(["a"])
    bench.answer()
    bench.reactor.advance(200)
    assert bench.asked[-1] == ["a"]
    assert not bench.can_wait, "another asker cannot"


def test_all_topics_by_age() -> None:
    bench = Bench()
    bench.metadata.track_all()
    bench.answer()
    bench.metadata.track_all()
    bench.reactor.advance(10_001)
    assert bench.asked == [None, None]
    bench.answer()
    bench.metadata.track_only(["a"])
    bench.answer()
    bench.reactor.advance(10_001)
    assert bench.asked[2:] == [["a"], ["a"]]


def test_elections_are_followed_until_there_is_a_leader() -> None:
    bench = Bench()
    bench.metadata.track(["a"])
    for _ in range(4):
        bench.answer(leader=-1)
        bench.reactor.advance(1_500)
    assert len(bench.sent) == 5
    bench.answer(leader=1)
    bench.reactor.advance(1_500)
    assert len(bench.sent) == 5


@pytest.mark.parametrize(
    ("code", "again"),
    [(ErrorCode.LEADER_NOT_AVAILABLE, True), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)],
)
def test_tracked_topics_with_errors(code: int, again: bool) -> None:
    bench = Bench()
    bench.metadata.track(["a"])
    bench.answer(code)
    bench.reactor.advance(1_500)
    assert (len(bench.sent) > 1) is again


def test_topics_are_made_only_for_those_who_want_to_write() -> None:
    bench = Bench()
    bench.metadata.refresh(["a"], lambda error: None)
    bench.answer()
    bench.metadata.refresh(["b"], lambda error: None, create=True)
    bench.answer()
    bench.metadata.refresh_tracked()
    bench.reactor.advance(200)
    assert [request.allow_auto_topic_creation for request in bench.sent] == [False, True, False]
    never = Bench(auto_create_topics=False)
    never.metadata.refresh(["a"], create=True)
    assert not never.sent[0].allow_auto_topic_creation


def test_a_deleted_topic_is_not_made_again_along_with_another() -> None:
    bench = Bench()
    bench.metadata.track(["gone"])
    bench.answer()
    bench.metadata.refresh(["gone"])
    bench.reactor.advance(1000)
    bench.metadata.refresh(["gone"])
    bench.metadata.refresh(["new"], create=True)
    bench.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    bench.reactor.advance(1000)
    bench.answer()
    bench.reactor.advance(1000)
    made = [
        topic.name
        for request in bench.sent[1:]
        if request.allow_auto_topic_creation
        for topic in request.topics or ()
    ]
    assert made == ["new"]
    assert bench.asked[-1] == ["gone"], "the others have their turn afterwards"


def test_topics_out_of_use_are_forgotten() -> None:
    bench = Bench(max_idle_ms=15_000)
    bench.metadata.track(["used", "idle"])
    bench.answer()
    for _ in range(3):
        bench.reactor.advance(10_001)
        bench.metadata.touch(["used"])
        bench.answer()
    assert bench.asked[-1] == ["used"]
    assert set(bench.metadata.cluster.topics) == {"used"}


def test_starting_over_from_the_bootstrap_servers_when_told_to() -> None:
    bench = Bench()
    bench.metadata.refresh(["a"])
    bench.answer()
    bench.metadata.refresh(["a"], lambda error: None)
    bench.answer(error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED))
    assert not bench.updates[-1].brokers
    bench.reactor.advance(200)
    bench.answer()
    assert set(bench.updates[-1].brokers) == {1}


def test_closing_tells_who_waits() -> None:
    bench = Bench()
    told: list[Any] = []
    bench.metadata.refresh(["a"], told.append)
    bench.metadata.refresh(["b"], told.append)
    closed = ClosedError()
    bench.metadata.close(closed)
    assert told == [closed, closed]
    bench.reactor.advance(60_000)
    assert len(bench.sent) == 1


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_without_answers_for_long_the_bootstrap_servers_are_asked_again(strategy: str) -> None:
    """As in KIP-1102: after metadata.recovery.rebootstrap.trigger.ms, counted from the first attempt."""
    bench = Bench(strategy=strategy)
    bench.metadata.refresh(["a"])
    bench.answer()
    bench.reactor.advance(9_000)
    bench.metadata.refresh(["a"])
    for _ in range(10):
        assert bench.metadata.cluster.brokers, "not yet"
        bench.reactor.advance(29_999)
        bench.fail(NetworkError("no answer"))
        bench.reactor.advance(1_500)
    assert bool(bench.metadata.cluster.brokers) == (strategy == "none")
    assert set(bench.metadata.cluster.topics) == {"a"}, "what is known of topics stays"
    bench.answer()
    assert set(bench.metadata.cluster.brokers) == {1}
