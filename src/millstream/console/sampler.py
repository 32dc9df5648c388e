"""The one who asks the brokers, on behalf of everybody who looks.

While somebody looks there is one round each refresh, whether one tab is open or fifty; when nobody has looked
for a while the sampler sleeps, and the next look wakes it. A round that fails leaves the last snapshot in
place, with the reason beside it, and the next round may succeed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from millstream.console.looking import Snapshot
from millstream.console.threads import on_a_thread
from millstream.console.views.sampling import History, Point, Rates
from millstream.errors import MillstreamError

log = logging.getLogger(__name__)

_LINGER_SECONDS: Final = 30.0
"""How long it goes on after the last look, so that moving between pages keeps rates and charts."""
_PATIENCE_SECONDS: Final = 4.0
"""How long a look waits for the round that it has caused; then it gets what there is."""
_GAP_REFRESHES: Final = 4


@dataclass(frozen=True, slots=True)
class View:
    """What is known now. ``snapshot`` is None before the first round has succeeded."""

    snapshot: Snapshot | None = None
    rates: Rates = field(default_factory=Rates)
    taken_at_s: float = 0.0
    """When the snapshot was taken, by the loop's clock."""
    trouble: str = ""
    """Why the last round failed, and what to do; empty when it did not."""
    rounds: int = 0
    """How many have ended, well or not."""


class Sampler:
    """Runs ``look`` on a thread, once each refresh, while somebody calls ``view``."""

    def __init__(self, look: Callable[[], Snapshot], refresh_s: float) -> None:
        self.refresh_s = refresh_s
        self.current = View()
        self._look = look
        self._gap_s = _GAP_REFRESHES * refresh_s + _PATIENCE_SECONDS
        self._history = History(gap_ms=round(self._gap_s * 1000))
        self._took_s = 0.0
        self._wanted = asyncio.Event()
        self._is_fresh = asyncio.Event()
        """Set from the end of a round until it falls asleep: what is known is then at most a refresh old."""
        self._last_wanted_s = 0.0
        self._is_closing = False

    @property
    def gap_ms(self) -> int:
        """Points of a chart that are further apart than this have a pause between them."""
        return self._history.gap_ms

    def points(self, group: str) -> tuple[Point, ...]:
        """A group's lag over time."""
        return self._history.points(group)

    async def view(self) -> View:
        """What is known, at most a refresh old; older only where the brokers do not answer in time."""
        self.wake()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._is_fresh.wait()
        except TimeoutError:
            return self._while_waiting()
        return self.current

    def wake(self) -> None:
        """Somebody looks now, or soon."""
        self._last_wanted_s = _now_s()
        self._wanted.set()

    def close(self) -> None:
        """Let everybody go who waits, as the console ends."""
        self._is_closing = True
        self._is_fresh.set()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self._wanted.wait()
            started_s = _now_s()
            await self._round()
            took_s = _now_s() - started_s
            # Never more than half of the time asking: a large cluster takes as long as it takes.
            await asyncio.sleep(max(self.refresh_s - took_s, took_s))
            if _now_s() - self._last_wanted_s > max(_LINGER_SECONDS, 3 * self.refresh_s):
                self._sleep()

    async def _round(self) -> None:
        before, started_s = self.current, _now_s()
        try:
            snapshot = await on_a_thread(self._look, "millstream-console-sampler")
        except Exception as error:  # noqa: BLE001 - whatever it is, the next round may succeed
            self.current = View(
                before.snapshot, before.rates, before.taken_at_s, _sentence(error), before.rounds + 1
            )
        else:
            now_s = _now_s()
            self._allow_for(now_s - started_s)
            self._history.add(snapshot.sample(round(now_s * 1000)))
            self.current = View(snapshot, self._history.rates, now_s, "", before.rounds + 1)
        self._is_fresh.set()

    def _allow_for(self, took_s: float) -> None:
        """Rounds that take long, and the rest after each of them, are no pause between two samples."""
        self._history.gap_ms = round((self._gap_s + self._took_s + took_s) * 1000)
        self._took_s = took_s

    def _sleep(self) -> None:
        self._wanted.clear()
        if not self._is_closing:
            self._is_fresh.clear()

    def _while_waiting(self) -> View:
        if self.current.trouble:
            return self.current
        trouble = f"The brokers have not answered for {_PATIENCE_SECONDS:g} seconds; still trying."
        seen = self.current
        return View(seen.snapshot, seen.rates, seen.taken_at_s, trouble, seen.rounds)


def _sentence(error: Exception) -> str:
    if not isinstance(error, MillstreamError):
        log.error("a round of the console has failed", exc_info=error)
        return f"The console has failed at this: {type(error).__name__}: {error} (see its log)."
    text = " ".join(str(error).split())
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()
