"""Reads snapshots of the cluster periodically, on behalf of all viewers.

While pages are viewed there is one round each refresh, whether one tab is open or fifty. Without viewers the
sampler sleeps, and the next request wakes it. A failed round keeps the last snapshot and adds the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from millstream.console.background import on_a_thread
from millstream.console.cluster_snapshot import ClusterSnapshot
from millstream.console.views.sampling import History, LagPoint, Rates
from millstream.errors import MillstreamError

log = logging.getLogger(__name__)

_LINGER_SECONDS: Final = 30.0
"""How long sampling continues after the last request, so that rates and charts survive a page change."""
_PATIENCE_SECONDS: Final = 4.0
"""How long a request waits for a round; then it gets the last known view."""
_GAP_REFRESHES: Final = 4


@dataclass(frozen=True, slots=True)
class SampledView:
    """What is known of the cluster now. ``snapshot`` is None before the first successful round."""

    snapshot: ClusterSnapshot | None = None
    rates: Rates = field(default_factory=Rates)
    taken_at_s: float = 0.0
    """When the snapshot was taken, by the loop's clock."""
    trouble: str = ""
    """Why the last round failed, and what to do; empty when it did not."""
    rounds: int = 0
    """How many have ended, with success or not."""


class Sampler:
    """Runs ``read_snapshot`` on a thread, once each refresh, while ``view`` is called."""

    def __init__(self, read_snapshot: Callable[[], ClusterSnapshot], refresh_s: float) -> None:
        self.refresh_s = refresh_s
        self.current = SampledView()
        self._read_snapshot = read_snapshot
        self._gap_s = _GAP_REFRESHES * refresh_s + _PATIENCE_SECONDS
        self._history = History(gap_ms=round(self._gap_s * 1000))
        self._took_s = 0.0
        self._wanted = asyncio.Event()
        self._is_fresh = asyncio.Event()
        """Set from the end of a round until the sampler sleeps: the view is then at most a refresh old."""
        self._last_wanted_s = 0.0
        self._is_closing = False

    @property
    def gap_ms(self) -> int:
        """Points of a chart further apart than this have a pause between them."""
        return self._history.gap_ms

    def points(self, group: str) -> tuple[LagPoint, ...]:
        """A group's lag over time."""
        return self._history.points(group)

    async def view(self) -> SampledView:
        """The view, at most a refresh old; older only if the brokers do not answer in time."""
        self.wake()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._is_fresh.wait()
        except TimeoutError:
            return self._while_waiting()
        return self.current

    def wake(self) -> None:
        """Start sampling, or keep it going."""
        self._last_wanted_s = _now_s()
        self._wanted.set()

    def close(self) -> None:
        """Release all waiting requests, as the console ends."""
        self._is_closing = True
        self._is_fresh.set()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self._wanted.wait()
            started_s = _now_s()
            await self._round()
            took_s = _now_s() - started_s
            # Read for at most half of the time, however long a round of a large cluster takes.
            await asyncio.sleep(max(self.refresh_s - took_s, took_s))
            if _now_s() - self._last_wanted_s > max(_LINGER_SECONDS, 3 * self.refresh_s):
                self._sleep()

    async def _round(self) -> None:
        before, started_s = self.current, _now_s()
        try:
            snapshot = await on_a_thread(self._read_snapshot, "millstream-console-sampler")
        except Exception as error:  # noqa: BLE001 - the next round may succeed
            self.current = SampledView(
                before.snapshot, before.rates, before.taken_at_s, _sentence(error), before.rounds + 1
            )
        else:
            now_s = _now_s()
            self._allow_for(now_s - started_s)
            self._history.add(snapshot.sample(round(now_s * 1000)))
            self.current = SampledView(snapshot, self._history.rates, now_s, "", before.rounds + 1)
        self._is_fresh.set()

    def _allow_for(self, took_s: float) -> None:
        """Do not treat long rounds, and the rest after them, as pauses between samples."""
        self._history.gap_ms = round((self._gap_s + self._took_s + took_s) * 1000)
        self._took_s = took_s

    def _sleep(self) -> None:
        self._wanted.clear()
        if not self._is_closing:
            self._is_fresh.clear()

    def _while_waiting(self) -> SampledView:
        if self.current.trouble:
            return self.current
        trouble = f"The brokers have not answered for {_PATIENCE_SECONDS:g} seconds; still trying."
        seen = self.current
        return SampledView(seen.snapshot, seen.rates, seen.taken_at_s, trouble, seen.rounds)


def _sentence(error: Exception) -> str:
    if not isinstance(error, MillstreamError):
        log.error("a round of the console failed", exc_info=error)
        return f"The console failed: {type(error).__name__}: {error} (see its log)."
    text = " ".join(str(error).split())
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()
