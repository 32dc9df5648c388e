"""Gets tokens from an OIDC token endpoint with a client's id and secret (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from millstream.errors import AuthenticationError, ConfigError
from millstream.security.login import Login
from millstream.security.tls import TlsSettings

_SECONDS: Final = 10.0
_MAX_BYTES: Final = 1 << 20
_DEFAULT_LIFE_S: Final = 60.0
"""For an answer that does not say how long the token lasts."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the client's secret to another address."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class TokenEndpoint:
    """One token endpoint. Raises ConfigError for an address or a CA that cannot be used."""

    def __init__(self, url: str, ca_location: str, ca_pem: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"sasl_oauthbearer_token_endpoint_url must be an https address, not {url!r}",
                setting="sasl_oauthbearer_token_endpoint_url",
            )
        self._url = url
        self._shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
        tls = TlsSettings(truststore_location=ca_location, truststore_certificates=ca_pem)
        handler = urllib.request.HTTPSHandler(context=tls.context())
        self._opener = urllib.request.build_opener(_NoRedirects, handler)

    def fetch(self, login: Login) -> tuple[str, float]:
        """Return a token and the seconds it lasts; raises AuthenticationError."""
        # Not percent-encoded, as Kafka's own clients do by default.
        credentials = f"{login.client_id}:{login.client_secret}"
        form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
        request = urllib.request.Request(
            self._url,
            data=urllib.parse.urlencode(form).encode(),
            headers={
                "Authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
                "Accept": "application/json",
            },
        )
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                data = answer.read(_MAX_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                reason = _error_of(error.read(_MAX_BYTES))
            raise AuthenticationError(
                f"the token endpoint {self._shown} refused the client {login.client_id!r}: "
                f"HTTP {error.code}{reason}"
            ) from None
        except (OSError, ssl.SSLError) as error:
            reason = str(getattr(error, "reason", error))
            raise AuthenticationError(
                f"the token endpoint {self._shown} cannot be reached: {reason}"
            ) from None
        return self._read(data)

    def _read(self, data: bytes) -> tuple[str, float]:
        try:
            answer = json.loads(data)
            return str(answer["access_token"]), float(answer.get("expires_in", _DEFAULT_LIFE_S))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise AuthenticationError(
                f"the token endpoint {self._shown} did not answer with an access_token in JSON"
            ) from None


def _error_of(data: bytes) -> str:
    """Read why the endpoint refused (RFC 6749, section 5.2), as far as it says so in words."""
    try:
        answer = json.loads(data)
        words = [str(answer[name])[:200] for name in ("error", "error_description") if name in answer]
    except (ValueError, TypeError, RecursionError):
        return ""
    return f" ({': '.join(words)})" if words else ""
