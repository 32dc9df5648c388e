"""Checks the JSON Web Tokens of OAUTHBEARER: signature, issuer, audience and times."""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import jwt

from millstream.broker.security.sasl import Authenticated
from millstream.broker.security.settings import ListenerSettings
from millstream.errors import ConfigError, SaslAuthenticationFailedError

log = logging.getLogger("millstream.broker")

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Signatures by a key pair only: with a shared secret, everyone who can check a token could make one."""
_MAX_DOCUMENT: Final = 1 << 20
_FETCH_SECONDS: Final = 10.0
_KEEP_SECONDS: Final = 3600.0
_RETRY_SECONDS: Final = 10.0


class KeySet:
    """The keys that sign tokens: a JWKS document, read again when it is old or lacks a key. Any thread."""

    def __init__(self, url: str) -> None:
        """Check the address. Raises ConfigError."""
        self._url = url
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http", "file"):
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url must begin with https:// or file://")
        if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ConfigError(
                "sasl.oauthbearer.jwks.endpoint.url must be https://: anyone could change http://"
            )
        self._path = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._lock = threading.Lock()
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_at = self._tried_at = float("-inf")

    def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key with this id; without an id, the only one there is."""
        with self._lock:
            now = time.monotonic()
            missing = key_id not in self._keys
            if (missing or now - self._read_at > _KEEP_SECONDS) and now - self._tried_at > self._pause:
                self._tried_at = now
                self._read(now)
            if key_id is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            return self._keys.get(key_id)

    @property
    def _pause(self) -> float:
        """Tokens with made-up ids must not make the broker ask for keys all the time; a file costs little."""
        return 0.0 if self._path is not None else _RETRY_SECONDS

    def _read(self, now: float) -> None:
        try:
            if self._path is not None:
                data = self._path.read_bytes()
            else:
                with urllib.request.urlopen(self._url, timeout=_FETCH_SECONDS) as answer:
                    data = answer.read(_MAX_DOCUMENT + 1)
            if len(data) > _MAX_DOCUMENT:
                raise ValueError("the document is too large")
            keys = jwt.PyJWKSet.from_dict(json.loads(data)).keys
        except (OSError, ValueError, jwt.PyJWTError) as error:
            log.error("the keys of %s cannot be read: %s", self._url, error)
            return
        self._keys = {key.key_id: key for key in keys}
        self._read_at = now


class _Claims:
    """Reads who a token is for, and until when it is good."""

    def __init__(self, settings: ListenerSettings) -> None:
        self._user_claim = settings.sasl_oauthbearer_sub_claim_name

    def authenticated(self, claims: dict[str, Any]) -> Authenticated:
        user, expires = claims.get(self._user_claim), claims.get("exp")
        if not isinstance(user, str) or not user:
            raise SaslAuthenticationFailedError(f"the token has no {self._user_claim} that names a user")
        if not isinstance(expires, int | float):
            raise SaslAuthenticationFailedError("the token never expires")
        return Authenticated(user, float(expires))


class SignedTokens:
    """Tokens signed by a key of the set."""

    def __init__(self, settings: ListenerSettings, keys: KeySet) -> None:
        self._settings = settings
        self._keys = keys
        self._claims = _Claims(settings)

    def validate(self, token: str) -> Authenticated:
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS:
                raise SaslAuthenticationFailedError(
                    f"tokens signed by {str(algorithm)[:20]!r} are not accepted"
                )
            key = self._keys.find(header.get("kid"))
            if key is None:
                raise SaslAuthenticationFailedError("the token is signed by a key that is not known")
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=list(settings.sasl_oauthbearer_expected_audience) or None,
                issuer=settings.sasl_oauthbearer_expected_issuer or None,
                leeway=settings.sasl_oauthbearer_clock_skew_seconds,
                options={
                    "require": ["exp"],
                    "verify_aud": bool(settings.sasl_oauthbearer_expected_audience),
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            log.info("refused a token: %s", error)
            raise SaslAuthenticationFailedError("the token is not valid") from None
        return self._claims.authenticated(claims)


class UnsignedTokens:
    """Tokens that anyone can make (``alg: none``): for tests, where they were asked for."""

    def __init__(self, settings: ListenerSettings) -> None:
        self._claims = _Claims(settings)
        self._leeway = settings.sasl_oauthbearer_clock_skew_seconds
        log.warning("OAUTHBEARER accepts unsigned tokens: anyone can log in as anyone")

    def validate(self, token: str) -> Authenticated:
        try:
            if jwt.get_unverified_header(token).get("alg") != "none":
                raise SaslAuthenticationFailedError("the unsecured validator accepts unsigned tokens only")
            claims = jwt.decode(
                token,
                leeway=self._leeway,
                options={
                    "verify_signature": False,
                    "verify_exp": True,
                    "verify_nbf": True,
                    "require": ["exp"],
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            log.info("refused a token: %s", error)
            raise SaslAuthenticationFailedError("the token is not valid") from None
        return self._claims.authenticated(claims)
