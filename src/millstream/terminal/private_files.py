"""Small JSON files that only their owner may read, replaced as a whole, such as the contexts."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from millstream.terminal.outcome import CommandError, warn

_MAX_BYTES: Final = 1 << 20


def config_directory() -> Path:
    """Return millstream's directory for the user's configuration, which may not exist yet."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(home):  # others are to be ignored, says the XDG specification
        return Path(home) / "millstream"
    try:
        return Path.home() / ".config" / "millstream"
    except RuntimeError as error:  # raised by pathlib when there is no home
        raise CommandError(
            "the user has no home directory: set XDG_CONFIG_HOME to a directory for configuration"
        ) from error


def read_private(path: Path) -> dict[str, Any]:
    """Read a file; empty where there is none. Raises CommandError for one that is not a JSON object."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                warn(f"{path} can be read by other users of this machine: run 'chmod 600 {path}'")
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    try:
        found = json.loads(data) if len(data) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CommandError(f"{path} is damaged, it holds no JSON object: mend it, or delete it")
    return found


@contextmanager
def changing_private(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a file's values, and write them back if the block ends well.

    Writers wait for each other, and readers see the old or the new file.
    """
    path = path.resolve()  # a link stays one
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        values = read_private(path)
        yield values
        _replace(path, json.dumps(values, indent=2, ensure_ascii=False).encode() + b"\n")
    finally:
        os.close(lock)


def _replace(path: Path, data: bytes) -> None:
    """Replace a file durably by one that only its owner may read."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        sync_directory(path.parent)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None


def sync_directory(path: Path) -> None:
    """Make the names of its files durable, after one was replaced."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
