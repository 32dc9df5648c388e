"""Checks passwords, sessions and bearer tokens. Runs on the event loop; hashes are derived on threads."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.console.background import on_a_thread
from millstream.console.login.attempts import Attempts
from millstream.console.login.sessions import Sessions
from millstream.console.login.users import MAX_PASSWORD, ConsoleUser, Role, Users
from millstream.errors import ConfigError
from millstream.security.references import resolve
from millstream.terminal.outcome import CommandError, UsageError

log = logging.getLogger(__name__)

_LEAST_TOKEN: Final = 16
_REFERENCE: Final = re.compile(r"\$\{(?:env|file|dir):[^}]+\}")
_FREE_BY_ADDRESS: Final = 5
_FREE_BY_USER: Final = 50
_MOST_AT_ONCE: Final = 2
"""How many hashes are derived at a time: each takes 32 MiB."""
_MOST_WAITING: Final = 32


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who sends a request."""

    user: str
    csrf: str = field(default="", repr=False)
    """For the forms of a session; empty for a bearer token, which can send none."""
    role: Role = Role.LOOK

    @property
    def may_change(self) -> bool:
        """Whether pages show forms that change something."""
        return self.role is Role.CHANGE


class TooManyAttemptsError(Exception):
    """Another attempt must wait for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many attempts: wait {seconds:.0f} s")
        self.seconds = max(1, math.ceil(seconds))


class Login:
    """The login of one console: its users, its bearer token, and who has logged in."""

    def __init__(self, users: Users, bearer_token: str | None = None) -> None:
        self._users = users
        self._reference = bearer_token
        self._sessions = Sessions()
        self._by_address = Attempts(_FREE_BY_ADDRESS)
        self._by_user = Attempts(_FREE_BY_USER)
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self._waiting = 0

    @classmethod
    def configured(cls, users: Users, bearer_token: str | None) -> Login | None:
        """The login, or None where there are neither users nor a token. Raises UsageError for a bad token."""
        if bearer_token is not None:
            if not _REFERENCE.fullmatch(bearer_token):
                raise UsageError(
                    "--bearer-token takes a reference, as others see what is typed: write "
                    "'${env:NAME}' or '${dir:DIRECTORY:FILE}'"
                )
            if len(resolve(bearer_token)) < _LEAST_TOKEN:
                raise UsageError(f"the token at {bearer_token} needs at least {_LEAST_TOKEN} characters")
        elif not users.all():
            return None
        return cls(users, bearer_token)

    async def log_in(self, user: str, password: str, address: str) -> str | None:
        """Return the token of a new session; None for a wrong user or password.

        Raises TooManyAttemptsError, which also counts for correct passwords.
        """
        keys = ((self._by_address, _network(address)), (self._by_user, user[:MAX_PASSWORD]))
        now_s = asyncio.get_running_loop().time()
        wait_s = max(attempts.wait_s(key, now_s) for attempts, key in keys)
        if wait_s or self._waiting >= _MOST_WAITING:
            raise TooManyAttemptsError(wait_s)
        for attempts, key in keys:
            attempts.count(key, now_s)
        account = self._known_users().get(user, self._users.nobody)
        self._waiting += 1
        try:
            async with self._room:
                given = password[:MAX_PASSWORD]
                is_right = await on_a_thread(
                    lambda: account.password.matches(given), "millstream-console-login"
                )
        finally:
            self._waiting -= 1
        if not is_right or len(password) > MAX_PASSWORD:
            log.warning("a login to the console was refused, from %s", address)
            return None
        for attempts, key in keys:
            attempts.forget(key)
        return self._sessions.open(user, account, now_s)

    def log_out(self, token: str) -> None:
        """End a session."""
        self._sessions.close(token)

    def by_session(self, token: str) -> Viewer | None:
        """The viewer of a session; None if it has ended, or its user has another password or role now."""
        found = self._sessions.find(token, asyncio.get_running_loop().time())
        if found is None:
            return None
        is_still_there = self._known_users().get(found.user) == found.account
        return Viewer(found.user, found.csrf, found.account.role) if is_still_there else None

    def by_bearer(self, token: str, address: str) -> Viewer | None:
        """The viewer with this bearer token. Raises TooManyAttemptsError."""
        key, now_s = _network(address), asyncio.get_running_loop().time()
        if wait_s := self._by_address.wait_s(key, now_s):
            raise TooManyAttemptsError(wait_s)
        if self._reference is not None and _is_same(token, self._bearer_token()):
            return Viewer("bearer token")
        self._by_address.count(key, now_s)
        return None

    def _known_users(self) -> Mapping[str, ConsoleUser]:
        """The users; none while their file is damaged."""
        try:
            return self._users.all()
        except CommandError as error:
            log.error("no one can be logged in to the console: %s", error)
            return {}

    def _bearer_token(self) -> str | None:
        assert self._reference is not None, "the caller has asked"
        try:
            found = resolve(self._reference)
        except ConfigError as error:
            log.error("no bearer token is accepted: %s", error)
            return None
        return found if len(found) >= _LEAST_TOKEN else None


def _is_same(given: str, expected: str | None) -> bool:
    """Compare in a time that tells nothing, not even the length."""
    if expected is None:
        return False
    digests = (hashlib.sha256(text.encode(errors="replace")).digest() for text in (given, expected))
    return hmac.compare_digest(*digests)


def _network(address: str) -> str:
    """What one attacker holds: an IPv4 address, or the 64 bits of an IPv6 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 6 and found.ipv4_mapped is None:
        return str(ipaddress.ip_network(f"{found}/64", strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)
