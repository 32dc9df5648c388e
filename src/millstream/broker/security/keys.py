"""The keys that sign tokens: a JWKS document at an address or in a file, read again when it changes.

What is at an address is read on a thread of its own: tokens whose keys are known never wait for it.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import threading
import time
import urllib.request
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

import jwt

from millstream.errors import ConfigError

log = logging.getLogger("millstream.broker")

MAX_DOCUMENT_BYTES: Final = 1 << 20
FETCH_SECONDS: Final = 10.0
"""For the whole document; after twice this time, a read that still hangs is no longer waited for."""
_KEEP_SECONDS: Final = 3600.0
_RETRY_SECONDS: Final = 10.0
"""Tokens with made-up ids of keys must not make the broker ask for keys all the time."""
_WAITING: Final = 2
"""So many logins wait for a key that may be in the next document; others are refused, as in Kafka."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class KeySet:
    """The keys of one document, by their ids. Any thread."""

    def __init__(self, url: str) -> None:
        """Check the address, and begin to read it. Raises ConfigError."""
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http", "file"):
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url must begin with https:// or file://")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ConfigError(
                "sasl.oauthbearer.jwks.endpoint.url must be https://: anyone could change http://"
            )
        self._url = url
        self._path = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._lock = threading.Lock()  # never held while a document is read from an address
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._stamp: object = None
        self._read_at = self._tried_at = float("-inf")
        self._reading: threading.Event | None = None
        self._places = threading.BoundedSemaphore(_WAITING)
        if self._path is None:
            self._begin_reading()

    def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key with this id; without an id, the only one there is."""
        if self._path is not None:
            self._read_changed_file(self._path)
            return self._known(key_id)
        key = self._known(key_id)
        if key is None or time.monotonic() - self._read_at > _KEEP_SECONDS:
            reading = self._begin_reading()
            if key is None and reading is not None:
                self._wait(reading)
                return self._known(key_id)
        return key

    def _known(self, key_id: str | None) -> jwt.PyJWK | None:
        keys = self._keys
        return next(iter(keys.values())) if key_id is None and len(keys) == 1 else keys.get(key_id)

    def _wait(self, reading: threading.Event) -> None:
        """Wait for the document: without any keys all logins do, later a few only."""
        if not self._keys:
            reading.wait(2 * FETCH_SECONDS)
        elif self._places.acquire(blocking=False):
            try:
                reading.wait(2 * FETCH_SECONDS)
            finally:
                self._places.release()

    def _begin_reading(self) -> threading.Event | None:
        """Read the document, unless that was tried just now; return what is set at the end."""
        with self._lock:
            now = time.monotonic()
            tried = now - self._tried_at
            if self._reading is not None and not self._reading.is_set() and tried < 2 * FETCH_SECONDS:
                return self._reading
            if tried <= _RETRY_SECONDS:
                return None
            self._tried_at = now
            done = self._reading = threading.Event()
        threading.Thread(target=self._read_address, args=(done,), name="jwks", daemon=True).start()
        return done

    def _read_address(self, done: threading.Event) -> None:
        try:
            self._keys = _parse(_download(self._url))
            self._read_at = time.monotonic()
        except (OSError, ValueError, http.client.HTTPException, jwt.PyJWTError) as error:
            log.error("the keys of %s cannot be read: %s", self._url, error)
        finally:
            done.set()

    def _read_changed_file(self, path: Path) -> None:
        with self._lock:
            try:
                found = os.stat(path)
                stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
                if stamp == self._stamp:
                    return
                self._stamp = stamp
                with path.open("rb") as file:
                    self._keys = _parse(file.read(MAX_DOCUMENT_BYTES + 1))
            except (OSError, ValueError, jwt.PyJWTError) as error:
                log.error("the keys of %s cannot be read: %s", self._url, error)


def _parse(document: bytes) -> dict[str | None, jwt.PyJWK]:
    if len(document) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"the document is larger than {MAX_DOCUMENT_BYTES} bytes")
    found = json.loads(document)
    if not isinstance(found, dict):
        raise ValueError("the document is not a JSON object")
    return {key.key_id: key for key in jwt.PyJWKSet.from_dict(found).keys}


def _download(url: str) -> bytes:
    """Read a document, of bounded size and in bounded time."""
    deadline = time.monotonic() + FETCH_SECONDS
    data = b""
    with urllib.request.build_opener(_SafeRedirects).open(url, timeout=FETCH_SECONDS) as answer:
        while chunk := answer.read1(1 << 16):
            data += chunk
            if len(data) > MAX_DOCUMENT_BYTES:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"it takes longer than {FETCH_SECONDS:.0f} seconds")
    return data


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only: anyone could change what http brings."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != "https":
            raise ValueError(f"it redirects to {newurl}, which is not https://")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
