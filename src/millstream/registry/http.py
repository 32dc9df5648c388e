"""Requests to a schema registry: several addresses, retries with back-off, a deadline, bounded answers."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import random
import ssl
import time
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit

from millstream.config.registry import RegistrySettings
from millstream.errors import ConfigError, RegistryError, RegistryUnavailableError, SchemaNotFoundError
from millstream.security.references import resolve
from millstream.security.tls import TlsSettings
from millstream.security.tls_errors import explain

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 16 << 20
_CHUNK: Final = 1 << 16
_ROUNDS: Final = 4
"""How often all addresses are tried before a request fails."""
_FIRST_PAUSE_S: Final = 0.1
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_MESSAGE: Final = 300


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the login to another address."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class RegistryHttp:
    """Sends requests. Any thread may use it."""

    def __init__(self, settings: RegistrySettings) -> None:
        if not settings.registry_url:
            raise ConfigError(
                "registry_url is missing: set it to the registry's address", setting="registry_url"
            )
        self._settings = settings
        self._urls = settings.registry_url
        self._seconds = settings.registry_timeout_ms / 1000
        self._tls = settings.registry_tls
        self._stamps: object = None
        self._opener: urllib.request.OpenerDirector | None = None
        self._first = 0

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the JSON of the answer.

        Raises RegistryUnavailableError when no address answers in time, SchemaNotFoundError for what the
        registry does not have, and RegistryError when it refuses.
        """
        deadline = time.monotonic() + self._seconds
        pause_s = _FIRST_PAUSE_S
        for attempt in range(_ROUNDS):
            try:
                return self._try_all(method, path, body, deadline)
            except RegistryUnavailableError as error:
                wait_s = pause_s * random.uniform(0.5, 1.0)
                if attempt == _ROUNDS - 1 or time.monotonic() + wait_s >= deadline:
                    raise
                log.debug("registry: %s; trying again in %.1f s", error, wait_s)
                time.sleep(wait_s)
                pause_s *= 2
        raise AssertionError("the last round returns or raises")

    def _try_all(self, method: str, path: str, body: object, deadline: float) -> Any:
        """Try each address once, beginning with the one that answered last."""
        failed: list[RegistryUnavailableError] = []
        for step in range(len(self._urls)):
            place = (self._first + step) % len(self._urls)
            try:
                answer = self._send(self._urls[place], method, path, body, deadline)
            except RegistryUnavailableError as error:
                failed.append(error)
                continue
            self._first = place
            return answer
        raise failed[-1] if len(failed) == 1 else RegistryUnavailableError("; ".join(map(str, failed)))

    def _send(self, url: str, method: str, path: str, body: object, deadline: float) -> Any:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise RegistryUnavailableError(
                f"the schema registry {url} did not answer within registry_timeout_ms"
            )
        login = self._authorization()
        request = urllib.request.Request(
            url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": f"{_CONTENT_TYPE}, application/json", "Content-Type": _CONTENT_TYPE, **login},
            method=method,
        )
        try:
            with self._opened().open(request, timeout=left_s) as answer:
                data = _read(answer, url, deadline)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(url, error.code, _body(error), login, self._settings) from None
        except (OSError, http.client.HTTPException) as error:
            raise RegistryUnavailableError(
                f"the schema registry {url} cannot be reached: {_reason(error, url, self._tls)}"
            ) from None
        return _parsed(data, url)

    def _opened(self) -> urllib.request.OpenerDirector:
        """Return the opener, made again when a certificate's file has changed."""
        stamps = self._tls.stamps()
        if self._opener is None or stamps != self._stamps:
            uses_tls = any(url.startswith("https:") for url in self._urls)
            context = self._tls.context() if uses_tls else None
            self._opener = urllib.request.build_opener(
                _NoRedirects, *([urllib.request.HTTPSHandler(context=context)] if context else [])
            )
            self._stamps = stamps
        return self._opener

    def _authorization(self) -> dict[str, str]:
        """Return the header of the login; references are read each time, so that renewed secrets are used."""
        user = resolve(self._settings.registry_basic_auth_user_info)
        token = resolve(self._settings.registry_bearer_auth_token)
        value = ""
        if user:
            value = "Basic " + base64.b64encode(user.encode()).decode()
        elif token:
            value = f"Bearer {token}"
        if any(ord(letter) < 32 for letter in value):
            raise ConfigError("registry_bearer_auth_token holds a line break: remove it")
        return {"Authorization": value} if value else {}


def _read(answer: http.client.HTTPResponse, url: str, deadline: float) -> bytes:
    """Read an answer that is neither too large nor too slow."""
    data = bytearray()
    while chunk := answer.read1(_CHUNK):
        data += chunk
        if len(data) > _MAX_BYTES:
            raise RegistryError(f"the schema registry {url} answered with more than {_MAX_BYTES} bytes")
        if time.monotonic() > deadline:
            raise RegistryUnavailableError(f"the schema registry {url} took longer than registry_timeout_ms")
    if answer.length:
        raise http.client.IncompleteRead(bytes(data), answer.length)
    return bytes(data)


def _parsed(data: bytes, url: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise RegistryError(
            f"{url} did not answer in JSON: check that registry_url is a schema registry, with its path"
        ) from None


def _body(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_CHUNK)
    except (OSError, http.client.HTTPException):
        return b""


def _refusal(
    url: str, status: int, data: bytes, login: dict[str, str], settings: RegistrySettings
) -> RegistryError:
    """Return the error for an answer of HTTP other than 200, in the registry's words, without secrets."""
    code, message = _error_of(data)
    for secret in _secrets(login, settings):
        message = message.replace(secret, "***")
    said = f": {message}" if message else ""
    if status in (401, 403):
        how = "set registry_basic_auth_user_info or registry_bearer_auth_token"
        given = "the login is not accepted or may not do this" if login else f"it requires a login: {how}"
        return RegistryError(f"the schema registry {url} refused (HTTP {status}), {given}", status, code)
    if status == 429 or status >= 500:
        return RegistryUnavailableError(
            f"the schema registry {url} failed (HTTP {status}){said}", status, code
        )
    if status == 404 and code is not None and 40401 <= code <= 40499:
        return SchemaNotFoundError(f"the schema registry {url} does not have it{said}", status, code)
    if status == 404:
        said += "; check that registry_url is a schema registry, with its path"
    return RegistryError(f"the schema registry {url} refused (HTTP {status}){said}", status, code)


def _secrets(login: dict[str, str], settings: RegistrySettings) -> list[str]:
    words = [value.partition(" ")[2] for value in login.values()]
    user_info = resolve(settings.registry_basic_auth_user_info)
    return [word for word in (*words, user_info, user_info.partition(":")[2]) if word]


def _error_of(data: bytes) -> tuple[int | None, str]:
    try:
        answer = json.loads(data)
        code, message = answer.get("error_code"), answer.get("message")
    except (ValueError, AttributeError, RecursionError):
        return None, ""
    return (code if isinstance(code, int) else None), str(message or "")[:_MAX_MESSAGE]


def _reason(error: Exception, url: str, tls: TlsSettings) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, ssl.SSLError):
        explained = explain(cause, urlsplit(url).hostname or "", has_certificate=tls.has_certificate)
        return explained.replace("ssl.", "registry.ssl.")
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__
