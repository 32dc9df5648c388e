"""EmbeddedBroker: the broker as a context manager, for programs and tests.

The broker runs in a process of its own, so that it does not share the interpreter lock with the program. When
the program ends, in whatever way, the broker sees its pipe close and stops cleanly.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

from millstream.errors import BrokerStartError, ClosedError, ConfigError, MillstreamTimeoutError

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


class EmbeddedBroker:
    """A broker for as long as the ``with`` block lasts::

        with EmbeddedBroker() as broker:
            producer = Producer(bootstrap_servers=broker.bootstrap_servers)

    ``data``: the directory of the topics; without it they are deleted at the end.
    ``listen``: the address, or listeners as ``NAME://host:port``; port 0 takes any free one.
    ``settings``: Kafka's broker settings by their names.
    ``allow_remote``: accept a ``listen`` that other machines can reach, without a login.
    ``metrics_port``: serve metrics there, for this machine only; 0 takes any free port.
    ``security``: TLS, a login by SCRAM and ACLs; ``client_settings`` then has what clients need.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        *,
        settings: Mapping[str, object] | None = None,
        allow_remote: bool = False,
        security: bool = False,
        metrics_port: int | None = None,
    ) -> None:
        self._given_data = None if data is None else Path(data)
        self._listen = listen
        self._settings = dict(settings or {})
        self._allow_remote = allow_remote
        self._security = security
        self._metrics = "" if metrics_port is None else str(metrics_port)
        self._temporary: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._addresses: dict[str, str] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, as ``host:port``: that of the first listener."""
        return next(iter(self.addresses.values()))

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each listener by its name, as ``host:port``."""
        if not self._addresses:
            raise ClosedError("the embedded broker is not running: use it in a with block, or call start()")
        return self._addresses

    @property
    def metrics_url(self) -> str:
        """Where Prometheus finds the broker's metrics, if ``metrics_port`` was given."""
        if not self._metrics:
            raise ConfigError("the embedded broker serves no metrics: start it with metrics_port=0")
        return f"http://{self._metrics}/metrics"

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings of clients, by Kafka's names, for millstream's and for confluent-kafka's.

        With ``security`` they log in as ``admin``, who may do everything.
        """
        if not self._security:
            return {"bootstrap.servers": self.bootstrap_servers}
        from millstream.broker.security.bootstrap import client_settings

        return client_settings(self.data, self.bootstrap_servers)

    @property
    def data(self) -> Path:
        """The directory of the topics."""
        if self._given_data is not None:
            return self._given_data
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="millstream-")
        return Path(self._temporary)

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        if self._process is None:
            raise ClosedError("the embedded broker is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start, and return when clients can connect. A start after ``stop`` has the same port and data."""
        if self._process is not None:
            return self
        process = subprocess.Popen(
            [sys.executable, "-m", "millstream.broker.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._process = process
        try:
            self._addresses = self._handshake(process)
        except BaseException:
            self.kill()
            raise
        # The same ports at the next start.
        self._settings.pop("listeners", None)
        self._listen = ",".join(f"{name}://{address}" for name, address in self._addresses.items())
        return self

    def stop(self) -> None:
        """Stop cleanly. The data stays until ``close``."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once, like a crash: for tests of what survives one."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stop, and delete the data unless a directory was given."""
        self.stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _handshake(self, process: subprocess.Popen[bytes]) -> dict[str, str]:
        """Send the process its configuration, wait for its answer, and return its addresses."""
        order: dict[str, Any] = {
            "data": str(self.data),
            "listen": self._listen,
            "settings": self._settings,
            "allow_remote": self._allow_remote,
            "security": self._security,
            "metrics": self._metrics,
        }
        assert process.stdin is not None and process.stdout is not None, "both are pipes"
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        line = _read_line(process.stdout)
        answer: dict[str, Any] = (
            json.loads(line) if line else {"error": "its process ended before it was ready"}
        )
        if line:
            answer = json.loads(line)
        if "error" in answer:
            raise BrokerStartError(answer["error"])
        addresses: dict[str, str] = answer["listeners"]
        self._metrics = answer["metrics"]
        return addresses

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        self._addresses = {}
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _read_line(pipe: IO[bytes]) -> bytes:
    """Return the first line, empty at the end of the pipe; raise when it takes ``_START_SECONDS``."""
    deadline = time.monotonic() + _START_SECONDS
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            raise MillstreamTimeoutError(f"the embedded broker was not ready after {_START_SECONDS:.0f} s")
        chunk = os.read(pipe.fileno(), 65536)
        if not chunk:
            return b""
        line += chunk
    return line
