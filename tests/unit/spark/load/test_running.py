"""How the tests of loads end: what a test found is what is said, whatever becomes of the load."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from millstream.spark.load import Detail, Load, Point
from tests.spark.load.conftest import Pause, running


class FakeLoad:
    """Comes to a point, and fails after it."""

    def __init__(self, pause: Pause | None = None) -> None:
        self.pause = pause
        self.stopping = threading.Event()

    def run(self, every: float) -> None:
        if self.pause is not None:
            self.pause(Point.TASKS_DONE, Detail())
        self.stopping.wait()
        raise RuntimeError("the load's own")

    def stop(self) -> None:
        self.stopping.set()

    def snapshot(self) -> str:
        return "a snapshot"


def of(load: FakeLoad) -> Load:
    return cast("Load", load)


def test_the_error_of_the_block_wins() -> None:
    with pytest.raises(ZeroDivisionError) as raised, running(of(FakeLoad())):
        raise ZeroDivisionError
    notes = raised.value.__notes__
    assert notes == [
        "the load at that moment: a snapshot",
        'the load failed: RuntimeError("the load\'s own")',
    ]


def test_without_one_it_is_the_load_s() -> None:
    with pytest.raises(RuntimeError, match="the load's own"), running(of(FakeLoad())):
        pass


def test_a_pause_is_let_go_when_the_test_fails() -> None:
    pause = Pause(Point.TASKS_DONE)
    with pytest.raises(ZeroDivisionError) as raised, running(of(FakeLoad(pause))), pause:
        raise ZeroDivisionError
    assert "the load failed" in raised.value.__notes__[-1], "it has ended"
