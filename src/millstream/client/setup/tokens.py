"""Tokens for OAUTHBEARER: from the user's callable, an OIDC token endpoint, or AWS's signer for MSK."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.client.setup.oidc import TokenEndpoint
from millstream.errors import AuthenticationError
from millstream.extras import require
from millstream.security.login import MSK_IAM, Login, SaslSettings

_USED_PART: Final = 0.8
"""A token is replaced after this part of its life, as in Kafka (sasl.login.refresh.window.factor)."""
_MSK_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com")


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """A bearer token and the time, in seconds since 1970, from which it is no longer used."""

    value: str = field(repr=False)
    use_until: float
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSource:
    """Gets tokens, and keeps the last one for other connections. For any thread; one at a time asks."""

    def __init__(self, settings: SaslSettings) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Token] = {}
        self._settings = settings
        self._endpoint: TokenEndpoint | None = None
        if settings.mechanism != MSK_IAM and settings.oauth_callback is None:
            self._endpoint = TokenEndpoint(
                settings.token_endpoint_url, settings.https_ca_location, settings.https_ca_pem
            )

    def token(self, host: str, login: Login) -> Token:
        """Return a token for a broker; raises AuthenticationError, which never shows one."""
        place = _region(host) if login.mechanism == MSK_IAM else ""
        with self._lock:
            kept = self._kept.get(place)
            if kept is None or time.time() >= kept.use_until:
                kept = self._kept[place] = self._new_token(place, login)
            return kept

    def forget(self, token: Token) -> None:
        """The broker refused this token: get another one next time."""
        with self._lock:
            self._kept = {place: kept for place, kept in self._kept.items() if kept is not token}

    def _new_token(self, region: str, login: Login) -> Token:
        now = time.time()
        extensions: Mapping[str, str] = {}
        if login.mechanism == MSK_IAM:
            value, expires_at = _msk_token(region, login)
        elif self._endpoint is not None:
            value, seconds = self._endpoint.fetch(login)
            expires_at = now + seconds
        else:
            value, expires_at, extensions = self._called()
        return Token(value, now + _USED_PART * max(0.0, expires_at - now), extensions)

    def _called(self) -> tuple[str, float, Mapping[str, str]]:
        callback = self._settings.oauth_callback
        assert callback is not None, "without an endpoint there is a callable"
        try:
            returned = callback(self._settings.oauth_config)
        except Exception as error:
            raise AuthenticationError(f"oauth_cb, which gets tokens, raised {error!r}") from error
        return _read_returned(returned)


def _read_returned(returned: Any) -> tuple[str, float, Mapping[str, str]]:
    """Read what the callable returned: a token, perhaps with its expiry, a principal and extensions."""
    parts = returned if isinstance(returned, tuple | list) else (returned,)
    value, expires_at, _, extensions = (*parts, *(None,) * (4 - len(parts)))[:4]
    if not isinstance(value, str) or not isinstance(expires_at, int | float | None):
        raise AuthenticationError(
            "oauth_cb must return a token, or (token, expiry in seconds since 1970): it returned "
            f"{type(returned).__name__}"
        )
    return value, _expiry(value) if expires_at is None else float(expires_at), extensions or {}


def _expiry(token: str) -> float:
    """Read when a JWT expires; a token that does not say so is used once."""
    import jwt

    try:
        claims = jwt.decode(token, options={"verify_signature": False})
        return float(claims["exp"])
    except (jwt.PyJWTError, KeyError, TypeError, ValueError):
        return 0.0


def _region(host: str) -> str:
    match = _MSK_HOST.search(host)
    region = (
        match["region"] if match else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    )
    if not region:
        raise AuthenticationError(
            f"{host} does not tell its AWS region: set the environment variable AWS_REGION"
        )
    return region


def _msk_token(region: str, login: Login) -> tuple[str, float]:
    """Sign a token with AWS's credentials, as ``sasl.jaas.config`` names them."""
    provider = require("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "msk")
    options = login.options
    make: Callable[..., tuple[str, int]] = provider.generate_auth_token
    arguments: tuple[str, ...] = (region,)
    if options.get("awsRoleArn"):
        make = provider.generate_auth_token_from_role_arn
        arguments = (region, options["awsRoleArn"], options.get("awsRoleSessionName", "millstream"))
    elif options.get("awsProfileName"):
        make, arguments = provider.generate_auth_token_from_profile, (region, options["awsProfileName"])
    try:
        value, expires_at_ms = make(*arguments)
    except Exception as error:
        raise AuthenticationError(f"AWS's signer gave no token: {error}") from error
    return value, expires_at_ms / 1000
