"""Checks the JSON Web Tokens of OAUTHBEARER: signature, issuer, audience and times."""

from __future__ import annotations

import logging
from typing import Any, Final

import jwt

from millstream.broker.security.keys import KeySet
from millstream.broker.security.sasl import Authenticated
from millstream.broker.security.settings import ListenerSettings
from millstream.errors import SaslAuthenticationFailedError

log = logging.getLogger("millstream.broker")

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Signatures by a key pair only: with a shared secret, everyone who can check a token could make one."""


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
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
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
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            log.info("refused a token: %s", error)
            raise SaslAuthenticationFailedError("the token is not valid") from None
        return self._claims.authenticated(claims)
