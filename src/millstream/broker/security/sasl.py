"""The broker's side of SASL: one session per connection, from the handshake to a principal.

Until a session has authenticated, only ApiVersions, SaslHandshake and SaslAuthenticate are answered; any
other request closes the connection. A client may authenticate again at any time (KIP-368), as the same user,
and must do so before its session expires, where sessions do.

Refusals say the same, and take as long, whether a user is unknown or a password wrong.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from millstream.broker.security.users import ScramUsers
from millstream.errors import CorruptMessage, SaslAuthenticationFailedError
from millstream.security.sasl import scram
from millstream.security.sasl.oauthbearer import encode_refusal, parse_bearer
from millstream.security.sasl.plain import parse_plain

MAX_TOKEN_BYTES: Final = 64 * 1024
"""The largest message of an exchange: OAUTHBEARER's hold a token, all others are much smaller."""
_MAX_LIFETIME_MS: Final = 2**62
"""A token may name any number as its end, and the answer has room for 63 bits."""
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *scram.MECHANISMS, OAUTHBEARER)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The end of an exchange: who it was, and until when their credential is good (seconds since 1970)."""

    user: str
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The broker's answer to one message of an exchange; ``done`` at its end."""

    answer: bytes
    done: Authenticated | None = None


class Exchange(Protocol):
    """One exchange of one mechanism."""

    blocks: bool
    """Whether ``step`` may take long, so that it must not run on the event loop."""

    def step(self, message: bytes) -> Step:
        """Answer a message. Raises SaslAuthenticationFailedError, or CorruptMessage, to end the exchange."""


class TokenValidator(Protocol):
    """Checks bearer tokens."""

    def validate(self, token: str) -> Authenticated:
        """Return whose token it is. Raises SaslAuthenticationFailedError."""


def _refuse(mechanism: str) -> SaslAuthenticationFailedError:
    return SaslAuthenticationFailedError(
        f"Authentication failed with SASL mechanism {mechanism}: the user, the password or the token is wrong"
    )


class PlainExchange:
    """PLAIN: compares a password."""

    blocks = False

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, message: bytes) -> Step:
        login = parse_plain(message)
        expected = self._passwords.get(login.username)
        # For an unknown user, too, something is compared.
        wanted = "" if expected is None else expected
        same = hmac.compare_digest(wanted.encode(), login.password.encode())
        if expected is None or not same:
            raise _refuse(PLAIN)
        if login.authorization_id not in ("", login.username):
            raise SaslAuthenticationFailedError("a PLAIN user cannot act as another: leave the authzid empty")
        return Step(b"", Authenticated(login.username))


class ScramExchange:
    """SCRAM: a challenge with a new nonce, and the proof for it."""

    blocks = False

    def __init__(self, mechanism: scram.ScramMechanism, users: ScramUsers) -> None:
        self._mechanism = mechanism
        self._users = users
        self._server: scram.ScramServer | None = None
        self._user = ""
        self._is_known = False

    def step(self, message: bytes) -> Step:
        if self._server is None:
            return self._challenge(scram.parse_client_first(message))
        try:
            answer = self._server.final(message)
        except SaslAuthenticationFailedError:
            raise _refuse(self._mechanism.name) from None
        if not self._is_known:  # no proof fits a made-up credential
            raise _refuse(self._mechanism.name)
        return Step(answer, Authenticated(self._user))

    def _challenge(self, first: scram.ClientFirst) -> Step:
        if first.authorization_id not in ("", first.username):
            raise SaslAuthenticationFailedError("a SCRAM user cannot act as another: leave the authzid empty")
        if first.extensions.get("tokenauth", "").lower() == "true":
            raise SaslAuthenticationFailedError("this broker has no delegation tokens")
        credential, self._is_known = self._users.challenge_for(first.username, self._mechanism)
        self._user = first.username
        self._server = scram.ScramServer(self._mechanism, first, credential, secrets.token_urlsafe(24))
        return Step(self._server.challenge())


class BearerExchange:
    """OAUTHBEARER: checks a token; after a refusal it waits for the client to have read why."""

    blocks = True

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refused = False

    def step(self, message: bytes) -> Step:
        if self._refused:
            raise _refuse(OAUTHBEARER)
        login = parse_bearer(message)
        try:
            found = self._validator.validate(login.token)
        except SaslAuthenticationFailedError:
            self._refused = True
            return Step(encode_refusal("invalid_token"))
        if login.authorization_id not in ("", found.user):
            raise SaslAuthenticationFailedError("the token is for another user than the authzid")
        return Step(b"", found)


class _Phase(Enum):
    """What a session waits for."""

    HANDSHAKE = auto()
    TOKEN = auto()
    CHECKING = auto()
    """A step runs on another thread."""
    DONE = auto()


class SaslSession:
    """The login of one connection."""

    def __init__(
        self, exchanges: Mapping[str, Callable[[], Exchange]], *, max_reauth_ms: int, failure_delay_ms: int
    ) -> None:
        """``exchanges``: what begins an exchange, by mechanism.
        ``failure_delay_ms``: how long a refusal waits before it is sent.
        """
        self.failure_delay_ms = failure_delay_ms
        self._exchanges = exchanges
        self._max_reauth_ms = max_reauth_ms
        self._phase = _Phase.HANDSHAKE
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._logged_in_by = ""
        self._user: str | None = None
        self._expires_ms: int | None = None

    @property
    def mechanisms(self) -> list[str]:
        return sorted(self._exchanges)

    @property
    def principal(self) -> str | None:
        """Who the client is, once it has authenticated."""
        return None if self._user is None else f"User:{self._user}"

    def admits_requests(self, now_ms: int) -> bool:
        """Whether requests other than those of the login are answered now."""
        return self._phase is _Phase.DONE and not self.has_expired(now_ms)

    def has_expired(self, now_ms: int) -> bool:
        return self._expires_ms is not None and now_ms >= self._expires_ms

    @property
    def admits_versions(self) -> bool:
        """Whether ApiVersions is answered now: not in the middle of an exchange."""
        return self._phase in (_Phase.HANDSHAKE, _Phase.DONE)

    def begin(self, mechanism: str) -> bool:
        """Begin an exchange; return whether the mechanism is enabled. Raises CorruptMessage out of order."""
        if self._phase not in (_Phase.HANDSHAKE, _Phase.DONE):
            raise CorruptMessage("a SASL handshake in the middle of another")
        if mechanism not in self._exchanges:
            return False
        if self._logged_in_by and mechanism != self._logged_in_by:
            raise CorruptMessage(f"a client cannot change from {self._logged_in_by} to {mechanism}")
        self._mechanism = mechanism
        self._exchange = self._exchanges[mechanism]()
        self._phase = _Phase.TOKEN
        return True

    def take_exchange(self) -> Exchange:
        """Return the exchange, for its next step. Raises CorruptMessage out of order."""
        if self._phase is not _Phase.TOKEN or self._exchange is None:
            raise CorruptMessage("a SASL message without a handshake before it")
        self._phase = _Phase.CHECKING
        return self._exchange

    def complete_step(self, step: Step, now_ms: int, epoch_seconds: float) -> int:
        """Note the outcome of a step; return how long the session lasts at its end, 0 without a limit."""
        if step.done is None:
            self._phase = _Phase.TOKEN
            return 0
        if self._user is not None and step.done.user != self._user:
            raise SaslAuthenticationFailedError("a client cannot authenticate again as another user")
        self._user = step.done.user
        self._logged_in_by = self._mechanism
        self._exchange = None
        self._phase = _Phase.DONE
        limits = [self._max_reauth_ms] if self._max_reauth_ms > 0 else []
        if step.done.expires_at is not None:
            left_ms = (step.done.expires_at - epoch_seconds) * 1000
            limits.append(int(min(max(0, left_ms), _MAX_LIFETIME_MS)))
        self._expires_ms = now_ms + min(limits) if limits else None
        return min(limits, default=0)
