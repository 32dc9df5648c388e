"""Sessions of browsers: random, in memory, and ended after half a day."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from millstream.console.login.users import ConsoleUser

SESSION_SECONDS: Final = 12 * 3600
_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A user who has logged in."""

    user: str
    ends_s: float
    csrf: str = field(repr=False)
    """Proves that a form was made by the console, for this session."""
    account: ConsoleUser = field(repr=False)
    """What the user's password and role were: others end the session."""


class Sessions:
    """All sessions. They are found by a digest of their token, so that no comparison leaks it."""

    def __init__(self) -> None:
        self._open: OrderedDict[bytes, BrowserSession] = OrderedDict()

    def open(self, user: str, account: ConsoleUser, now_s: float) -> str:
        """Begin a session, and return its token. The oldest ends where there are too many."""
        token = secrets.token_urlsafe(32)
        ends_s = now_s + SESSION_SECONDS
        self._open[_digest(token)] = BrowserSession(user, ends_s, secrets.token_urlsafe(32), account)
        while len(self._open) > _MOST:
            self._open.popitem(last=False)
        return token

    def find(self, token: str, now_s: float) -> BrowserSession | None:
        """The session of a token; None if it has ended."""
        found = self._open.get(_digest(token))
        if found is not None and now_s >= found.ends_s:
            self.close(token)
            return None
        return found

    def close(self, token: str) -> None:
        """End a session."""
        self._open.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
