"""A place in an object store, with the few methods of ``pathlib.Path`` that the sink uses.

obstore does the requests: it releases the interpreter while it waits, so that the driver's group membership
goes on, and it takes the same options as delta-rs.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from millstream.spark.sinks.delta.places.options import StoreOptions

_BLOCK_BYTES = 1 << 20
"""What a read of a file fetches at least: Parquet reads many small pieces."""


class StoreError(OSError):
    """A request to an object store failed; the message is one line, and has no secret."""


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """What a listing says of an object. Times are whole seconds on S3."""

    st_size: int
    st_mtime: float
    e_tag: str


@dataclass(frozen=True, slots=True)
class RemotePath:
    """An object, or what a directory would be: a prefix of objects. Pickled with its options into tasks."""

    root: str
    """``s3://bucket``."""
    key: str
    """Without a slash at either end."""
    options: StoreOptions = field(repr=False, compare=False)
    found: RemoteStat | None = field(default=None, repr=False, compare=False)
    """As the listing had it that this path is from."""

    def __str__(self) -> str:
        return f"{self.root}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> RemotePath:
        return replace(self, key=f"{self.key}/{name}".strip("/"), found=None)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        return replace(self, key=self.key.rpartition("/")[0], found=None)

    def with_name(self, name: str) -> RemotePath:
        return self.parent / name

    def below(self, other: RemotePath) -> str:
        """The path from ``other`` to here."""
        return self.key.removeprefix(f"{other.key}/")

    # -- requests

    @property
    def _store(self) -> Any:
        return _opened(self.root, self.options)

    def is_dir(self) -> bool:
        """Whether there is any object below. Raises StoreError where the bucket is missing."""
        import obstore

        with _requests(self):
            return any(len(page) > 0 for page in obstore.list(self._store, prefix=self.key, chunk_size=1))

    def iterdir(self) -> Iterator[RemotePath]:
        """What is directly below; nothing where there is no such prefix."""
        import obstore

        with _requests(self):
            found = obstore.list_with_delimiter(self._store, prefix=self.key or None)
        yield from (self._listed(one) for one in found["objects"])
        yield from (replace(self, key=key, found=None) for key in found["common_prefixes"])

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """What is directly below under a name like this."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Objects anywhere below under a name like this."""
        import obstore

        with _requests(self):
            found = obstore.list(self._store, prefix=self.key).collect()
        return (path for path in map(self._listed, found) if fnmatchcase(path.name, pattern))

    def _listed(self, one: Any) -> RemotePath:
        return replace(self, key=one["path"], found=_stat(one))

    def stat(self) -> RemoteStat:
        """Raises FileNotFoundError without such an object."""
        import obstore

        if self.found is not None:
            return self.found
        with _requests(self):
            return _stat(obstore.head(self._store, self.key))

    def read_bytes(self) -> bytes:
        import obstore

        with _requests(self):
            return bytes(obstore.get(self._store, self.key).bytes())

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def read_range(self, start: int, end: int) -> bytes:
        import obstore

        with _requests(self):
            return bytes(obstore.get_range(self._store, self.key, start=start, end=end))

    def upload(self, file: Path) -> None:
        """Put a local file here, in parts where it is large. It is there as a whole, or not at all."""
        import obstore

        with _requests(self):
            obstore.put(self._store, self.key, file)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object; stores do not say whether there was one."""
        import obstore

        assert missing_ok
        with _requests(self):
            obstore.delete(self._store, self.key)


class RemoteReader(io.RawIOBase):
    """Reads an object from any position, for Parquet."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._at = 0

    @classmethod
    def open(cls, path: RemotePath) -> io.BufferedReader:
        return io.BufferedReader(cls(path), _BLOCK_BYTES)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        found = self._path.read_range(self._at, end)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


@lru_cache(maxsize=16)
def _opened(root: str, options: StoreOptions) -> Any:
    """A store for each process: it keeps connections."""
    return options.open(root)


def _stat(one: Any) -> RemoteStat:
    return RemoteStat(one["size"], one["last_modified"].timestamp(), one["e_tag"] or "")


@contextmanager
def _requests(path: RemotePath) -> Iterator[None]:
    """Turn obstore's errors into those of files; its messages go on with pages of debugging output."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        text = " ".join(str(error).partition("\n\nDebug source")[0].split())
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
            raise FileNotFoundError(f"{path} does not exist") from None
        raise StoreError(text) from None
