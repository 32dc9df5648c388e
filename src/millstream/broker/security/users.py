"""The SCRAM credentials of users, kept in a file of the data directory that only the broker's user can read.

A user that does not exist gets a credential too, one that no password fits, made of the name and a secret of
this broker: the exchange then looks and takes as long as with a wrong password.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from base64 import b64decode, b64encode
from bisect import bisect
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.broker.log.documents import parse_document
from millstream.broker.log.files import Files
from millstream.security.sasl.scram import MECHANISMS, MIN_ITERATIONS, ScramCredential, ScramMechanism

_FORMAT: Final = 1
_SALT_BYTES: Final = 16
UserKey = tuple[str, str]
"""A user's name, and the mechanism."""


class ScramUsers:
    """The stored credentials, by user and mechanism. ``open`` reads them."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._credentials: Mapping[UserKey, ScramCredential] = {}
        self._secret = secrets.token_bytes(32)
        self._ring: dict[str, list[tuple[bytes, int, int]]] = {}

    def open(self) -> None:
        """Read the file, if there is one. Raises KafkaStorageError if it is damaged."""
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            return
        self._files.make_private(self._path)
        self._secret, self._credentials = parse_document(
            self._path,
            data,
            _FORMAT,
            lambda document: (
                b64decode(document["secret"]),
                {(row[0], row[1]): _parse(*row[2:]) for row in document["users"]},
            ),
        )
        self._make_ring()

    def get(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._credentials.get((user, mechanism))

    def names(self) -> list[str]:
        """Return the users in alphabetical order."""
        return sorted({user for user, _ in self._credentials})

    def change(self, changes: Mapping[UserKey, ScramCredential | None]) -> None:
        """Store credentials, and remove those that are None, durably. On OSError nothing has changed."""
        merged = {**self._credentials, **changes}
        kept = {key: credential for key, credential in merged.items() if credential is not None}
        rows = [[*key, *_fields(kept[key])] for key in sorted(kept)]
        document = {"version": _FORMAT, "secret": b64encode(self._secret).decode(), "users": rows}
        self._files.write_atomically(self._path, json.dumps(document, indent=1).encode(), private=True)
        self._credentials = kept
        self._make_ring()

    def challenge_for(self, user: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        """Return a user's credential and True; for an unknown user one that fits no password, and False."""
        known = self._credentials.get((user, mechanism.name))
        if known is not None:
            return known, True
        place = self._place(user, mechanism.name)
        ring = self._ring.get(mechanism.name) or [(b"", MIN_ITERATIONS, _SALT_BYTES)]
        _, iterations, salt_bytes = ring[bisect(ring, (place,)) % len(ring)]
        salt = hashlib.shake_256(self._secret + place).digest(salt_bytes)
        key = hashlib.new(mechanism.hash_name, self._secret + salt).digest()
        return ScramCredential(salt, iterations, key, key), False

    def _place(self, user: str, mechanism: str) -> bytes:
        return hmac.digest(self._secret, f"{mechanism}\0{user}".encode(), "sha256")

    def _make_ring(self) -> None:
        """Give each stored credential a place among all names: an unknown name looks like the next one.

        So made-up challenges differ among each other as stored ones do, and few change with a new user.
        """
        ring: dict[str, list[tuple[bytes, int, int]]] = {}
        for (user, mechanism), stored in self._credentials.items():
            place = (self._place(user, mechanism), stored.iterations, len(stored.salt))
            ring.setdefault(mechanism, []).append(place)
        self._ring = {mechanism: sorted(places) for mechanism, places in ring.items()}


def _fields(credential: ScramCredential) -> list[object]:
    binary = (credential.salt, credential.stored_key, credential.server_key)
    return [credential.iterations, *(b64encode(value).decode() for value in binary)]


def _parse(iterations: int, salt: str, stored_key: str, server_key: str) -> ScramCredential:
    if type(iterations) is not int or iterations < 1:
        raise ValueError(f"{iterations!r} is not a number of iterations")
    return ScramCredential(b64decode(salt), iterations, b64decode(stored_key), b64decode(server_key))


MECHANISM_OF_TYPE: Final = {mechanism.type_id: mechanism for mechanism in MECHANISMS.values()}
"""The mechanisms by their numbers in requests about credentials."""
