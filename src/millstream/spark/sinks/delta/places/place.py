"""Place: where a table or one of its files is, and what differs between a directory and an object store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from millstream.errors import ConfigError
from millstream.extras import require
from millstream.spark.sinks.delta.places.options import StoreOptions, scheme_of
from millstream.spark.sinks.delta.places.remote import RemotePath, RemoteReader

Place = Path | RemotePath


def place_of(typed: str, options: Mapping[str, object] | None = None) -> Place:
    """The place of an address. Raises ConfigError for a store that is not supported, or wrong options."""
    if "://" not in typed or typed.startswith("file://"):
        if options:
            raise ConfigError(
                f"storage options are for object stores, and {typed} is a directory: leave them out"
            )
        return Path(typed.removeprefix("file://")).absolute()
    scheme = scheme_of(typed)
    require("obstore", "spark")
    parts = urlsplit(typed)
    key = parts.path.strip("/")
    if not parts.netloc or not key or parts.query or parts.fragment:
        raise ConfigError(f"{typed} is not the place of a table: write {scheme}://BUCKET/PATH")
    if parts.password is not None or (scheme != "abfss" and parts.username is not None):
        raise ConfigError(f"a {scheme}:// address has no login: give it as storage options")
    return RemotePath(f"{scheme}://{parts.netloc}", key, StoreOptions.of(scheme, options or {}))


def identity(place: Place) -> str:
    """The same for all spellings of one place; without options."""
    return str(place.resolve() if isinstance(place, Path) else place)


def delta_options(place: Place) -> dict[str, str] | None:
    """What delta-rs takes as ``storage_options`` for a table here."""
    return None if isinstance(place, Path) else place.options.for_delta


def beside(place: Place, suffix: str) -> Place:
    """The place whose name has ``suffix`` at its end."""
    return place.with_name(place.name + suffix)


def relative(path: Place, directory: Place) -> str:
    """The path of a file below ``directory``, as Delta's log has it."""
    if isinstance(path, Path):
        assert isinstance(directory, Path)
        return path.relative_to(directory).as_posix()
    assert isinstance(directory, RemotePath)
    return path.below(directory)


def fingerprint(path: Place) -> tuple[object, ...] | None:
    """Tells a file from another of the same name; None without a file."""
    try:
        if isinstance(path, RemotePath):
            remote = path.stat()
            return remote.e_tag, remote.st_size, remote.st_mtime
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def readable(path: Place) -> Any:
    """What Parquet opens to read a file."""
    return path if isinstance(path, Path) else RemoteReader.open(path)


def begin(path: Place) -> Path:
    """Where to write a new file: in its place, or locally until ``finish`` uploads it."""
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
    descriptor, name = tempfile.mkstemp(prefix="millstream-", suffix=".parquet")
    os.close(descriptor)
    return Path(name)


def finish(written: Path, path: Place) -> None:
    """Make a written file durable in its place."""
    if isinstance(path, Path):
        sync(path)
    else:
        path.upload(written)
        written.unlink()


def sync(path: Place) -> None:
    """Fsync a file or directory; what is in an object store is durable."""
    if isinstance(path, RemotePath):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
