"""A real PostgreSQL server that can be made to crash, and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.system.postgresql import run, running_server


class CrashingServer:
    """See the module. What it holds and its address outlive a crash."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.get_uri()

    def crash(self) -> None:
        """End it as a power cut would: nothing is written, connections break; the next start recovers."""
        arguments = ("-w", "-D", str(self._server.pgdata), "stop", "-m", "immediate")
        run("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def flush(self) -> None:
        """Bring to the disk what was committed without waiting for it."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._server.ensure_postgres_running()

    def restart(self) -> None:
        self.crash()
        self.start()


@contextmanager
def crashing_postgresql() -> Iterator[CrashingServer]:
    """A server of its own, as others do not want theirs to crash."""
    with running_server() as server:
        yield CrashingServer(server)
