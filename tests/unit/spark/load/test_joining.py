"""Joining the group: brokers that are away are told from a group that takes its time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.errors import GroupAuthorizationFailedError, LoadFailedError, MillstreamTimeoutError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.spark.load.engine import joining
from millstream.spark.load.engine.stopping import StoppedError
from tests.unit.spark.load.test_run import FakeMember, Stage


class LateMember(FakeMember):
    """The group gives it something when it has been asked for often enough."""

    asked = 0
    enough: Callable[[int], bool] = staticmethod(lambda asked: False)

    def wait_assigned(self, timeout_s: float) -> bool:
        self.asked += 1
        return self.enough(self.asked)


class Away(Stage):
    """A load whose group's coordinator answers with an error, or not at all; unlike the other brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.member: LateMember = LateMember(self.brokers, self.stop)
        self.error: Exception | None = MillstreamTimeoutError("the broker at here:9092: connection refused")
        self.questions = 0
        self._answer = self.brokers.group_offsets
        self.brokers.group_offsets = self._ask  # type: ignore[method-assign]

    def _ask(
        self, group: str, partitions: list[TopicPartition] | None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self.questions += 1
        if self.error is not None:
            raise self.error
        return self._answer(group, partitions)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    monkeypatch.setattr(joining, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(joining, "_AGAIN_SECONDS", 0.0)
    return Away()


def test_brokers_that_stay_away_end_a_load_that_runs_once(away: Away) -> None:
    away.retry_seconds = 0.05
    with pytest.raises(LoadFailedError) as raised:
        away.run().once()
    text = str(raised.value)
    assert "group g could not be joined: the broker at here:9092: connection refused (tried " in text
    assert "running it again is safe" in text and away.sink.name in text
    assert raised.value.committed == 0 and away.questions > 1


def test_brokers_that_come_back_in_time_end_nothing(away: Away, caplog: pytest.LogCaptureFixture) -> None:
    def enough(asked: int) -> bool:
        if asked > 5:
            away.error = None
        return asked > 10

    away.member.enough = enough
    assert away.run().once().loaded == 10
    assert "group g cannot be joined yet" in caplog.text and "answer again" in caplog.text


def test_a_group_that_takes_its_time_is_waited_for(away: Away, caplog: pytest.LogCaptureFixture) -> None:
    """However long: its brokers answer, and will share out the partitions."""
    away.error = None
    away.retry_seconds = 0.0
    away.member.enough = lambda asked: asked > 20
    assert away.run().once().loaded == 10
    assert caplog.text.count("still waiting for group g") == 1


def test_a_load_that_runs_on_goes_on_trying(away: Away, caplog: pytest.LogCaptureFixture) -> None:
    away.retry_seconds = 0.0
    run = away.run()
    states = set()

    def enough(asked: int) -> bool:
        states.add(run.snapshot().state)
        if asked > 50:
            away.stop.request()
        return False

    away.member.enough = enough
    report = run.forever(every=0)
    assert report.stopped and report.cycles == 0
    assert away.questions > 40 and states == {"joining", "waiting for the brokers"}
    assert caplog.text.count("cannot be joined yet") == 1, "it is said, and not with every try"


@pytest.mark.parametrize("once", [True, False])
def test_what_lasts_ends_it_at_once(away: Away, once: bool) -> None:
    away.error = GroupAuthorizationFailedError("g")
    with pytest.raises(LoadFailedError, match="could not be joined"):
        away.run().once() if once else away.run().forever(every=0)
    assert away.questions == 1


@pytest.mark.parametrize("once", [True, False])
def test_a_stop_in_the_middle_of_a_question_ends_it(away: Away, once: bool) -> None:
    away.error = StoppedError()
    report = away.run().once() if once else away.run().forever(every=0)
    assert report.cycles == 0 and away.questions == 1
