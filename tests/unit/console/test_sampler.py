"""One round for all who look, none when nobody does, and a failure that passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from millstream.console import sampler as module
from millstream.console.background import SharedResults
from millstream.console.cluster_snapshot import ClusterSnapshot
from millstream.console.sampler import SampledView, Sampler
from millstream.errors import MillstreamError
from tests.unit.console.snapshots import group, snapshot, topic
from tests.waiting import SECONDS

VIEWERS = 20


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen here is always from a round, also where the machine stands still during one."""
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", SECONDS)


class Brokers:
    """Stands in for a round of admin calls: counts them, and fails while it is told to."""

    def __init__(self) -> None:
        self.rounds = 0
        self.failure: Exception | None = None

    def look(self) -> ClusterSnapshot:
        self.rounds += 1
        if self.failure is not None:
            raise self.failure
        return snapshot(topic("t", (0, 10)), group("g"))


def running(brokers: Brokers, refresh_s: float, work: Callable[[Sampler], Coroutine[Any, Any, None]]) -> None:
    """Do some work while a sampler runs."""

    async def main() -> None:
        sampler = Sampler(brokers.look, refresh_s)
        task = asyncio.create_task(sampler.run())
        try:
            async with asyncio.timeout(SECONDS):
                await work(sampler)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(main())


async def until_view(sampler: Sampler, condition: Callable[[SampledView], bool]) -> SampledView:
    while not condition(view := await sampler.view()):  # noqa: ASYNC110 - nobody tells of a round
        await asyncio.sleep(0.01)
    return view


def test_many_viewers_share_one_round() -> None:
    brokers = Brokers()

    async def look(sampler: Sampler) -> None:
        views = await asyncio.gather(*(sampler.view() for _ in range(VIEWERS)))
        assert {view.rounds for view in views} == {1}
        again = await asyncio.gather(*(sampler.view() for _ in range(VIEWERS)))
        assert {view.rounds for view in again} == {1}, "within the refresh nobody asks again"

    running(brokers, 3600, look)
    assert brokers.rounds == 1


def test_there_is_a_round_each_refresh_while_somebody_looks() -> None:
    brokers = Brokers()

    async def look(sampler: Sampler) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await until_view(sampler, lambda view: view.rounds >= 5)
        assert loop.time() - begun_s >= 4 * 0.05

    running(brokers, 0.05, look)


def test_it_sleeps_when_nobody_looks_and_wakes_when_somebody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LINGER_SECONDS", 0.05)
    brokers = Brokers()

    async def look(sampler: Sampler) -> None:
        await sampler.view()
        while sampler._wanted.is_set():  # noqa: ASYNC110 - nobody tells when it falls asleep
            await asyncio.sleep(0.01)
        asleep = brokers.rounds
        await asyncio.sleep(0.2)
        assert brokers.rounds == asleep
        view = await sampler.view()
        assert view.rounds > asleep, "whoever wakes it gets what is new"

    running(brokers, 0.01, look)


def test_a_failure_keeps_what_is_known_and_passes() -> None:
    brokers = Brokers()

    async def look(sampler: Sampler) -> None:
        first = await sampler.view()
        brokers.failure = MillstreamError("no broker answers: start one")
        failed = await until_view(sampler, lambda view: bool(view.trouble))
        assert failed.trouble == "No broker answers: start one."
        assert failed.snapshot is first.snapshot
        assert failed.taken_at_s == first.taken_at_s
        brokers.failure = ValueError("odd")
        await until_view(sampler, lambda view: "ValueError: odd" in view.trouble)
        brokers.failure = None
        recovered = await until_view(sampler, lambda view: not view.trouble)
        assert recovered.taken_at_s > first.taken_at_s

    running(brokers, 0.01, look)


def test_closing_lets_everybody_go() -> None:
    async def main() -> None:
        sampler = Sampler(Brokers().look, 1.0)  # which does not run
        waiting = asyncio.create_task(sampler.view())
        await asyncio.sleep(0)
        sampler.close()
        async with asyncio.timeout(SECONDS):
            assert (await waiting).snapshot is None

    asyncio.run(main())


def test_answers_are_made_once_for_all_who_ask() -> None:
    made: list[str] = []

    def make() -> str:
        made.append("x")
        return "answer"

    async def main() -> None:
        shared = SharedResults()
        asked = (shared.get("key", make, keep_s=3600) for _ in range(VIEWERS))
        assert set(await asyncio.gather(*asked)) == {"answer"}
        await shared.get("other", make, keep_s=3600)
        await shared.get("key", make, keep_s=0)

    asyncio.run(main())
    assert len(made) == 3


def test_rounds_that_take_long_are_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a large cluster do: there are rates all the same."""
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.1)

    class Slow(Brokers):
        def look(self) -> ClusterSnapshot:
            time.sleep(0.2)
            return super().look()

    async def look(sampler: Sampler) -> None:
        await until_view(sampler, lambda view: bool(view.rates.produced))

    running(Slow(), 0.01, look)


def test_an_error_goes_to_all_and_is_not_kept() -> None:
    failures = [MillstreamError("once")]

    def make() -> str:
        if failures:
            raise failures.pop()
        return "answer"

    async def main() -> None:
        shared = SharedResults()
        first = await asyncio.gather(
            *(shared.get("key", make, keep_s=3600) for _ in range(3)), return_exceptions=True
        )
        assert [str(each) for each in first] == ["once"] * 3
        assert await shared.get("key", make, keep_s=3600) == "answer"

    asyncio.run(main())


def test_answers_that_are_kept_are_bounded() -> None:
    async def main() -> None:
        shared = SharedResults()
        for key in range(200):
            assert await shared.get(key, lambda: "x", keep_s=3600) == "x"
        assert len(shared._kept) <= 65

    asyncio.run(main())
