"""The members of the demo's group, seen from outside: processes to start, watch, kill and stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from millstream.terminal.outcome import CommandError

_WAIT_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0


def wait_until(happened: Callable[[], bool], what: str) -> float:
    """Wait for something, and return how many seconds that took; raises when it takes too long."""
    started = time.monotonic()
    while not happened():
        if time.monotonic() - started > _WAIT_SECONDS:
            raise CommandError(f"the demo waited {_WAIT_SECONDS:.0f} seconds in vain until {what}")
        time.sleep(0.02)
    return time.monotonic() - started


class Member:
    """One member's process, and the partitions that it last reported."""

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

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End the process at once, as a crash would: it says goodbye to nobody."""
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """Let the member leave the group and end."""
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


class Group:
    """All members, by the names that the demo gives them. Whatever happens, none outlives the block."""

    def __init__(self, partitions: int, order: Mapping[str, Any]) -> None:
        self._partitions = partitions
        self._order = order
        self.members: dict[str, Member] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, *names: str) -> None:
        for name in names:
            self.members[name] = Member(name, self._order)

    def kill(self, name: str) -> None:
        self.members.pop(name).kill()

    def stop(self) -> None:
        while self.members:
            _, member = self.members.popitem()
            member.stop()

    def ownership(self) -> dict[str, list[int]]:
        """The partitions of each living member."""
        return {name: sorted(member.partitions) for name, member in self.members.items()}

    def wait_until_settled(self) -> float:
        """Wait until each partition has one owner and each member a fair share; returns the seconds."""
        return wait_until(self._is_settled, "each partition had one owner")

    def _is_settled(self) -> bool:
        for member in self.members.values():
            if not member.is_alive:
                raise CommandError(f"member {member.name} of the demo's group ended by itself: see above why")
        shares = [member.partitions for member in self.members.values()]
        owned = sorted(partition for share in shares for partition in share)
        is_fair = max(map(len, shares)) - min(map(len, shares)) <= 1
        return owned == list(range(self._partitions)) and is_fair
