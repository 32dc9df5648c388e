"""The users' threads: real ones, of which one runs at a time, and only while the world waits for it.

A thread gives way where a real one may: where it waits, where it sleeps, and now and then where it takes a
consumer's lock. What happens in between, and for how long, is drawn from the seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar, Final

from tests.sim.world import World

_GIVES_WAY: Final = 0.04
_LONGEST_PAUSE_MS: Final = 3


class Killed(BaseException):
    """The process has died: unwinds its thread."""


class Actor:
    """A thread of a simulated process."""

    current: ClassVar[Actor | None] = None
    """Who runs; None: the world, and with it the I/O side of all consumers."""

    def __init__(self, world: World, run: Callable[[], None]) -> None:
        self.world = world
        self.is_over = False
        self._run = run
        self._naps = 0
        self._can_be_woken = False
        self._is_killed = False
        self._error: BaseException | None = None
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        world.later(0, self._step, 0)

    # ---- in the world ----

    def wake(self) -> None:
        """End its wait, soon."""
        if self._can_be_woken:
            self._can_be_woken = False
            self.world.later(self.world.rng.randint(0, 1), self._step, self._naps)

    def kill(self) -> None:
        """Unwind the thread, now, unless it is the one that runs: that ends at its next pause."""
        self._is_killed = True
        if not self.is_over and Actor.current is None:
            self._step(self._naps)
            self._thread.join()

    def _step(self, nap: int) -> None:
        """Let it run until it gives way, unless it was woken before."""
        if nap != self._naps or self.is_over:
            return
        self._naps += 1
        self._can_be_woken = False
        Actor.current = self
        self._go.release()
        self._back.acquire()
        Actor.current = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # ---- on its thread ----

    def _main(self) -> None:
        self._go.acquire()
        try:
            if not self._is_killed:
                self._run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - the world raises it
            self._error = error
        self.is_over = True
        self._back.release()

    def _give_way(self) -> None:
        if not self._is_killed:
            self._back.release()
            self._go.acquire()
        if self._is_killed:
            raise Killed

    def wait(self, timeout_ms: int) -> None:
        """Wait until ``wake``, but no longer than this."""
        self._can_be_woken = True
        self.world.later(timeout_ms, self._step, self._naps)
        self._give_way()

    def sleep(self, delay_ms: int) -> None:
        """Be busy: nothing wakes it."""
        self.world.later(delay_ms, self._step, self._naps)
        self._give_way()

    def maybe_pause(self) -> None:
        """Let others run now and then, as any thread must at any moment."""
        if self.world.chance(_GIVES_WAY):
            self.sleep(self.world.rng.randint(0, _LONGEST_PAUSE_MS))
