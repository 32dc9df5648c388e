"""The members of the demo's group, as processes to start, watch, kill and stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

from millstream.terminal.outcome import CommandError

_WAIT_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0


def wait_until(happened: Callable[[], bool], what: str) -> float:
    """Wait until ``happened()`` is true; returns the seconds it took, or raises CommandError."""
    started = time.monotonic()
    while not happened():
        if time.monotonic() - started > _WAIT_SECONDS:
            raise CommandError(f"the demo gave up after {_WAIT_SECONDS:.0f} seconds of waiting until {what}")
        time.sleep(0.02)
    return time.monotonic() - started


class MemberProcess:
    """The process of one member, and the partitions that it last reported."""

    def __init__(self, name: str, order: Mapping[str, Any]) -> None:
        self.name = name
        self.partitions: list[int] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "millstream.demo.member"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._input, self._output = self._process.stdin, self._process.stdout
        assert self._input is not None and self._output is not None, "both are pipes"
        self._input.write(json.dumps(order).encode() + b"\n")
        self._input.flush()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once, as a crash would: it does not leave the group."""
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """Let the process leave the group and end."""
        self._process.send_signal(signal.SIGTERM)
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(_STOP_SECONDS)
        self.partitions = []
        for pipe in (self._input, self._output):
            with suppress(OSError):
                assert pipe is not None, "both are pipes"
                pipe.close()

    def _listen(self) -> None:
        assert self._output is not None, "it is a pipe"
        for line in self._output:
            self.partitions = json.loads(line)["assigned"]


class MemberGroup:
    """All members by name. Leaving the ``with`` block stops them."""

    def __init__(self, partitions: int, order: Mapping[str, Any]) -> None:
        self._partitions = partitions
        self._order = order
        self.members: dict[str, MemberProcess] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, *names: str) -> None:
        for name in names:
            self.members[name] = MemberProcess(name, self._order)

    def kill(self, name: str) -> None:
        self.members.pop(name).kill()

    def stop(self) -> None:
        while self.members:
            _, member = self.members.popitem()
            member.stop()

    def ownership(self) -> dict[str, list[int]]:
        """The partitions of each member."""
        return {name: sorted(member.partitions) for name, member in self.members.items()}

    def wait_until_settled(self) -> float:
        """Wait until each partition has one owner and each member its share; returns the seconds."""
        return wait_until(self._is_settled, "each partition had one owner")

    def _is_settled(self) -> bool:
        for member in self.members.values():
            if not member.is_alive:
                raise CommandError(f"member {member.name} of the demo's group failed: see above why")
        shares = [member.partitions for member in self.members.values()]
        owned = sorted(partition for share in shares for partition in share)
        is_fair = max(map(len, shares)) - min(map(len, shares)) <= 1
        return owned == list(range(self._partitions)) and is_fair
