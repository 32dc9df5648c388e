"""Logging in and out over HTTP, and the guard that lets no other request through without a login.

Every address needs a login unless it is in ``open_paths``. A request that is not just for looking must come
from a form of the console: it needs the form's token, and an Origin that is the console's own.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.console.errors import ConsoleError
from millstream.console.login.login import Login, TooManyAttemptsError, Viewer
from millstream.console.login.sessions import SESSION_SECONDS
from millstream.console.web.proxies import TrustedProxies
from millstream.console.web.responses import PageRenderer, ReadableJson, wants_json

LOGIN: Final = "/login"
_STATIC: Final = "/static/"
_VIEWER: Final = "millstream.viewer"
_MOST_BYTES: Final = 8192
_LOG_IN: Final = "Log in first: open /login in a browser, or send Authorization: Bearer TOKEN."
_BEARER: Final = {"WWW-Authenticate": 'Bearer realm="millstream"'}


class RefusedFormError(ConsoleError):
    """A form that another page may have sent."""

    status = 403
    title = "Refused"


class TooLargeError(ConsoleError):
    """A body that no form of the console has."""

    status = 413
    title = "Too large"


def viewer_of(request: Request) -> Viewer | None:
    """Who sends a request; None without a login."""
    found: Viewer | None = request.scope.get(_VIEWER)
    return found


def has_login(request: Request) -> bool:
    """Whether this console asks for a login."""
    return _VIEWER in request.scope


@dataclass(frozen=True, slots=True)
class ConsoleAccess:
    """Who may look at a console, and how browsers keep their session."""

    login: Login
    port: int
    has_tls: bool = False
    proxies: TrustedProxies = field(default_factory=TrustedProxies)

    @property
    def cookie(self) -> str:
        """The name of the session's cookie. Browsers send cookies to all ports of a host."""
        return f"{'__Host-' if self.has_tls else ''}millstream-{self.port}"

    def address(self, request: Request) -> str:
        """Who sends a request: the peer, or the one that a trusted proxy names."""
        peer = "" if request.client is None else request.client.host
        return self.proxies.client(peer, request.headers.getlist("x-forwarded-for"))


class AccessGuard:
    """Lets requests through that have a session or the bearer token, or that are for open addresses."""

    def __init__(self, app: ASGIApp, access: ConsoleAccess, open_paths: Collection[str]) -> None:
        self._app = app
        self._access = access
        self._open = frozenset({LOGIN, *open_paths})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            viewer = scope[_VIEWER] = self._viewer(request)
        except TooManyAttemptsError as error:
            sentence = f"Too many attempts: wait {error.seconds} s."
            headers = {"Retry-After": str(error.seconds)}
            await ReadableJson({"error": sentence}, 429, headers)(scope, receive, send)
            return
        path = scope["path"]
        if viewer is not None or path in self._open or path.startswith(_STATIC):
            await self._app(scope, receive, send)
        else:
            await _ask_for_login(request)(scope, receive, send)

    def _viewer(self, request: Request) -> Viewer | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self._access.login.by_bearer(token.strip(), self._access.address(request))
        return self._access.login.by_session(request.cookies.get(self._access.cookie, ""))


class LoginPages:
    """The page and forms for logging in and out."""

    def __init__(self, access: ConsoleAccess, renderer: PageRenderer) -> None:
        self._access = access
        self._login = access.login
        self._renderer = renderer
        self._cookie = access.cookie
        self._form_cookie = f"{access.cookie}-form"
        self._has_tls = access.has_tls

    def routes(self) -> list[Route]:
        return [
            Route(LOGIN, self.show, methods=["GET"]),
            Route(LOGIN, self.log_in, methods=["POST"]),
            Route("/logout", self.log_out, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """The form."""
        following = local_path(request.query_params.get("next", ""))
        if viewer_of(request) is not None:
            return RedirectResponse(following, 303)
        return self._form(following)

    async def log_in(self, request: Request) -> Response:
        """Begin a session, and go on to the page that was asked for."""
        form = await _form_of(request)
        if not _is_equal(form.get("csrf", ""), request.cookies.get(self._form_cookie, "")):
            raise RefusedFormError("The form is out of date: load the page again, with cookies allowed.")
        following = local_path(form.get("next", ""))
        try:
            token = await self._login.log_in(
                form.get("user", ""), form.get("password", ""), self._access.address(request)
            )
        except TooManyAttemptsError as error:
            answer = self._form(following, f"Too many attempts: wait {error.seconds} s.", 429)
            answer.headers["Retry-After"] = str(error.seconds)
            return answer
        if token is None:
            return self._form(following, "Wrong user or password.", 401)
        response = RedirectResponse(following, 303)
        # Behind a proxy with TLS the console does not see the TLS, but the browser says so.
        is_secure = request.headers.get("origin", "").startswith("https://")
        self._set(response, self._cookie, token, SESSION_SECONDS, is_secure=is_secure)
        self._set(response, self._form_cookie, "", 0)
        return response

    async def log_out(self, request: Request) -> Response:
        """End the session."""
        await form_of_viewer(request)
        self._login.log_out(request.cookies.get(self._cookie, ""))
        response = RedirectResponse(LOGIN, 303)
        self._set(response, self._cookie, "", 0)
        return response

    def _form(self, following: str, sentence: str = "", status: int = 200) -> Response:
        csrf = secrets.token_urlsafe(32)
        response = self._renderer.login(csrf, following, sentence, status)
        self._set(response, self._form_cookie, csrf, SESSION_SECONDS)
        return response

    def _set(
        self, response: Response, name: str, value: str, seconds: int, *, is_secure: bool = False
    ) -> None:
        is_secure = is_secure or self._has_tls
        response.set_cookie(
            name, value, max_age=seconds, path="/", secure=is_secure, httponly=True, samesite="strict"
        )


def local_path(text: str) -> str:
    """An address of the console, to go on to; the overview for any other."""
    is_local = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_local and all("!" <= character <= "~" for character in text) else "/"


def is_own_origin(request: Request) -> bool:
    """Whether a request was made by a page of the console itself, as far as the browser says."""
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    scheme, _, host = origin.partition("://")
    is_secure_enough = scheme == "https" or (scheme == "http" and request.scope["scheme"] == "http")
    return bool(host) and is_secure_enough and host == request.headers.get("host")


async def form_of_viewer(request: Request) -> tuple[Viewer, dict[str, str]]:
    """Read a form that a session's own page has sent. Raises a ConsoleError for others."""
    form = await _form_of(request)
    viewer = viewer_of(request)
    if viewer is None or not _is_equal(form.get("csrf", ""), viewer.csrf):
        raise RefusedFormError("The form is out of date: load the page again.")
    return viewer, form


async def _form_of(request: Request) -> dict[str, str]:
    """Read a form of the console. Raises a ConsoleError for others."""
    if not is_own_origin(request):
        raise RefusedFormError("Another page has sent this form.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise TooLargeError(f"A form has at most {_MOST_BYTES} bytes.")
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=16)
    except ValueError:
        raise RefusedFormError("This is no form of the console.") from None
    return {name: values[0] for name, values in fields.items()}


def _ask_for_login(request: Request) -> Response:
    if wants_json(request):
        return ReadableJson({"error": _LOG_IN}, 401, _BEARER)
    query = request.scope["query_string"].decode("latin-1")
    asked = quote(request.scope["path"]) + (f"?{query}" if query else "")
    following = (
        "" if asked == "/" or request.method not in ("GET", "HEAD") else f"?next={quote(asked, safe='')}"
    )
    return RedirectResponse(f"{LOGIN}{following}", 303)


def _is_equal(given: str, expected: str) -> bool:
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())
