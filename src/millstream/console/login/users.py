"""Users of the console: names, roles and hashes of passwords, in a file that only its owner may read.

A hash is scrypt's, with a salt of its own. Deriving one takes about a tenth of a second and 32 MiB, on
purpose. So it is done on a thread, and for an unknown user as well: the time tells nothing about who exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from millstream.suggestions import did_you_mean
from millstream.terminal.outcome import CommandError, UsageError
from millstream.terminal.private_files import changing_private, config_directory, read_private

MAX_PASSWORD: Final = 1024
_LEAST_PASSWORD: Final = 8
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_COST: Final = 1 << 15
_BLOCK: Final = 8
_MAX_COST: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class StoredPassword:
    """The hash of a password, and how it was derived."""

    salt: bytes
    digest: bytes
    cost: int = _COST

    @classmethod
    def of(cls, password: str) -> StoredPassword:
        """Hash a new password. Blocks."""
        salt = secrets.token_bytes(16)
        return cls(salt, _derive(password, salt, _COST))

    def matches(self, password: str) -> bool:
        """Whether this is the password. Blocks, and compares in constant time."""
        return hmac.compare_digest(self.digest, _derive(password, self.salt, self.cost))


def _derive(password: str, salt: bytes, cost: int) -> bytes:
    text = unicodedata.normalize("NFC", password).encode(errors="surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=cost, r=_BLOCK, p=1, maxmem=2 * 128 * cost * _BLOCK, dklen=32)


class Role(StrEnum):
    """What a user may do."""

    LOOK = "look"
    CHANGE = "change"
    """Also create and delete topics, and move groups."""


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """A user, without the name."""

    password: StoredPassword
    role: Role = Role.LOOK


class Users:
    """The users in a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: object = None
        self._known: Mapping[str, ConsoleUser] = {}
        self.nobody = ConsoleUser(StoredPassword(secrets.token_bytes(16), secrets.token_bytes(32)))
        """For unknown users: no password has this hash."""

    def all(self) -> Mapping[str, ConsoleUser]:
        """All users. Raises CommandError for a damaged file."""
        try:
            found = self._path.stat()
            seen: object = (found.st_mtime_ns, found.st_size, found.st_ino)
        except FileNotFoundError:
            seen = None
        except OSError as error:
            raise CommandError(f"cannot read {self._path}: {error.strerror}") from None
        if seen != self._seen:
            self._known = _parsed(self._path, read_private(self._path))
            self._seen = seen
        return self._known


def users_file() -> Path:
    """Where users are kept unless another file is named."""
    return config_directory() / "console-users.json"


def set_user(path: Path, name: str, password: str, role: Role | None = None) -> None:
    """Add a user, or change its password and role. Sessions with the old ones end.

    Without ``role``, a known user keeps its role, and a new one may look.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a user: use at most 64 letters, digits and . _ @ -, "
            "with a letter or digit first"
        )
    if not _LEAST_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise UsageError(f"a password has {_LEAST_PASSWORD} to {MAX_PASSWORD} characters: choose another")
    stored = StoredPassword.of(password)
    with changing_private(path) as values:
        known = _parsed(path, values)
        before = known[name].role if name in known else Role.LOOK
        _fill(values, {**known, name: ConsoleUser(stored, role or before)})


def remove_user(path: Path, name: str) -> None:
    """Remove a user, whose sessions end."""
    with changing_private(path) as values:
        known = _parsed(path, values)
        if name not in known:
            hint = did_you_mean(name, known, show=repr) or "see 'millstream console-user list'"
            raise UsageError(f"there is no user {name!r} of the console: {hint}")
        _fill(values, {each: stored for each, stored in known.items() if each != name})


def _parsed(path: Path, values: Mapping[str, Any]) -> dict[str, ConsoleUser]:
    try:
        found = {name: _stored(each) for name, each in values.get("users", {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError, binascii.Error):
        raise CommandError(f"{path} is damaged: it holds no users; mend it, or delete it") from None
    return found


def _stored(values: Mapping[str, Any]) -> ConsoleUser:
    salt, digest = (base64.b64decode(values[name], validate=True) for name in ("salt", "scrypt"))
    cost = values["cost"]
    if not isinstance(cost, int) or not 2 <= cost <= _MAX_COST or cost & (cost - 1) or len(digest) != 32:
        raise ValueError("not a hash")
    return ConsoleUser(StoredPassword(salt, digest, cost), Role(values.get("role", Role.LOOK)))


def _fill(values: dict[str, Any], users: Mapping[str, ConsoleUser]) -> None:
    values["users"] = {
        name: {
            "role": each.role,
            "scrypt": base64.b64encode(each.password.digest).decode(),
            "salt": base64.b64encode(each.password.salt).decode(),
            "cost": each.password.cost,
        }
        for name, each in sorted(users.items())
    }
