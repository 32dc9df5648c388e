"""The I/O side of a simulated consumer: ``IoThread``, ``Reactor`` and ``Condition`` under virtual time.

The real client runs on these. Its I/O thread is the world itself, which runs one event after the other.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from millstream.client.io_thread import IoThread
from millstream.errors import ClosedError
from millstream.net.reactor import Callback, Reactor, Timer
from tests.sim.actors import Actor
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.network import Host


class Loop(Reactor):
    """The reactor of one process: timers, calls from its user's thread, and frames."""

    def __init__(self, world: World, host: Host) -> None:  # the real one has descriptors
        self.world = world
        self.host = host
        self.has_stopped = False
        self._calls: list[Callback] = []
        self._deferred: list[Callback] = []
        self._is_planned = False
        self._is_turning = False

    def now_ms(self) -> int:  # type: ignore[override]  # the real one is static
        return self.world.now_ms

    def call_at(self, deadline_ms: int, callback: Callback) -> Timer:
        timer = Timer(deadline_ms, callback)
        self.world.later(max(0, deadline_ms - self.world.now_ms), self._fire, timer)
        return timer

    def _fire(self, timer: Timer) -> None:
        if timer.callback is not None:
            self.turn(timer.callback)

    def call_threadsafe(self, callback: Callback) -> None:
        self._calls.append(callback)
        self._plan(self.world.rng.randint(0, 1))

    def defer(self, callback: Callback) -> None:
        self._deferred.append(callback)
        if not self._is_turning:
            self._plan(0)

    def stop(self) -> None:
        self.call_threadsafe(self._stop)

    def _stop(self) -> None:
        self.has_stopped = True

    def _plan(self, delay_ms: int) -> None:
        if not self._is_planned:
            self._is_planned = True
            self.world.later(delay_ms, self._planned_turn)

    def _planned_turn(self) -> None:
        self._is_planned = False
        calls, self._calls = self._calls, []
        self.turn(*calls)

    def turn(self, *callbacks: Callback) -> None:
        """Run these, and then what they have deferred. A dead process does nothing."""
        if self.has_stopped or not self.host.is_alive:
            return
        self._is_turning = True
        for callback in callbacks:
            callback()
        while self._deferred:
            deferred, self._deferred = self._deferred, []
            for callback in deferred:
                callback()
        self._is_turning = False


class Lock:
    """A condition of the I/O side and one user's thread."""

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: Actor | None = None
        self._is_over: Callable[[], bool] = bool

    def __enter__(self) -> bool:
        if self._depth == 0 and Actor.current is not None:
            Actor.current.maybe_pause()
        self._depth += 1
        return True

    def __exit__(self, *error: object) -> None:
        self._depth -= 1

    def wait_for(self, is_over: Callable[[], bool], timeout: float) -> None:
        assert Actor.current is not None, "the I/O side does not wait"
        if is_over():
            return
        depth, self._depth = self._depth, 0
        self._waiting, self._is_over = Actor.current, is_over
        try:
            Actor.current.wait(math.ceil(timeout * 1000))
        finally:
            self._waiting = None
            self._depth = depth

    def notify_all(self) -> None:
        """Wake the thread if it is worth it: a switch costs more than all else."""
        if self._waiting is not None and self._is_worth_it():
            self._waiting.wake()

    def _is_worth_it(self) -> bool:
        try:
            return self._is_over()
        except Exception:  # noqa: BLE001 - for the thread to raise
            return True


class SimulatedThread(IoThread):
    """What a client takes for its I/O thread."""

    def __init__(self, world: World, host: Host) -> None:  # the real one makes a thread
        self.world = world
        self.reactor = self._loop = Loop(world, host)
        self.name = host.name
        self.refusal = None
        self.on_fork: list[Callable[[], None]] = []
        self._stopping = False

    def start(self) -> None:
        """The world runs it."""

    def clock(self) -> float:
        return self.world.now_ms / 1000

    def condition(self) -> threading.Condition:
        return cast(Any, Lock())  # type: ignore[no-any-return]

    def stop(self, timeout_s: float | None) -> bool:
        self.refuse(ClosedError())
        if not self._stopping:
            self._stopping = True
            self.reactor.stop()
        while not self._loop.has_stopped and Actor.current is not None:
            Actor.current.wait(1)
        return True
