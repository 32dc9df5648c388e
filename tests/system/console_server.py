"""The web console for tests: the real server on a thread, asked over HTTP, and its pages taken apart."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode

from millstream.console.console import Console, ConsoleSettings
from millstream.console.login.login import Login
from millstream.console.web.access import ConsoleAccess
from millstream.console.web.proxies import TrustedProxies
from millstream.console.web.server import ConsoleServer, listen
from millstream.console.web.tls import TlsFiles, serving_context
from tests.kafka.logins import settings_of
from tests.waiting import SECONDS, until

PASSWORD: Final = "correct horse"
VOID: Final = {"meta", "link", "input", "path", "br", "img"}
"""Elements without an end."""


@dataclass(frozen=True)
class Answer:
    """What the console answered."""

    status: int
    headers: dict[str, str]
    text: str
    cookies: tuple[str, ...] = ()
    """The Set-Cookie headers."""

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def page(self) -> Page:
        return Page.of(self.text)


class Page(HTMLParser):
    """A page as a browser reads it: its text, its links, its tables. A tag that is not closed is an error."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.words: list[str] = []

    @classmethod
    def of(cls, text: str) -> Page:
        page = cls()
        page.feed(text)
        page.close()
        assert page.open == [], page.open
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "a":
            self.links.append(attributes.get("href") or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] = f"{self.rows[-1][-1]}{data}".strip()

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def row(self, name: str) -> list[str]:
        """The row of a table that begins with this name."""
        found = [row for row in self.rows if row and row[0] == name]
        assert found, f"no row {name!r} in {self.rows}"
        return found[0]


@dataclass(frozen=True)
class Served:
    """A console that is running."""

    console: Console
    port: int
    trusts: ssl.SSLContext | None = None
    """How to check the console's certificate; None without TLS."""

    def get(
        self,
        path: str,
        *,
        host: str = "",
        method: str = "GET",
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = self._connection()
        try:
            sent = {"Host": host or f"127.0.0.1:{self.port}", **(headers or {})}
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            cookies = tuple(response.headers.get_all("Set-Cookie") or ())
            return Answer(response.status, received, response.read().decode(), cookies)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self.trusts is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=SECONDS, context=self.trusts)

    def ok(self, path: str) -> Answer:
        answer = self.get(path)
        assert answer.status == 200, answer
        return answer

    def page(self, path: str) -> Page:
        return self.ok(path).page

    def until_round(self) -> None:
        """Wait until a round has ended well that began after this call."""
        before = self.ok("/healthz").json["rounds"]

        def looked() -> bool:
            self.get("/api/overview")
            health = self.ok("/healthz").json
            return bool(health["rounds"] >= before + 2 and health["broker"] == "up")

        until(looked, "two rounds of the sampler")


class Browser:
    """Keeps cookies, and sends what browsers send."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.cookies: dict[str, str] = {}
        scheme = "http" if served.trusts is None else "https"
        self.origin = f"{scheme}://127.0.0.1:{served.port}"

    def send(self, path: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
        given = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        body, method = None, "GET"
        if form is not None:
            given |= {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
            body, method = urlencode(form), "POST"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.served.get(path, method=method, body=body, headers=given)
        for cookie in answer.cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        return answer

    def csrf(self, path: str = "/login") -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', self.send(path).text)
        assert found is not None
        return found[1]

    def log_in(self, user: str = "ann", password: str = PASSWORD, **more: str) -> Answer:
        return self.send("/login", {"csrf": self.csrf(), "user": user, "password": password, **more})


@contextmanager
def serving(
    servers: str,
    refresh_s: float = 0.2,
    *,
    login: Login | None = None,
    tls: TlsFiles | None = None,
    trusts: ssl.SSLContext | None = None,
    local_only: bool = True,
    proxies: TrustedProxies | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """A console that looks at these brokers, until the block ends."""
    listener = listen("127.0.0.1", 0)
    console = Console(ConsoleSettings(servers, refresh_s, client=settings_of(servers), **settings))
    port = listener.getsockname()[1]
    access = None
    if login is not None:
        access = ConsoleAccess(login, port, has_tls=tls is not None, proxies=proxies or TrustedProxies())
    context = None if tls is None else serving_context(tls)
    server = ConsoleServer(console, local_only=local_only, access=access, tls=context)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the console to start")
        yield Served(console, port, trusts)
    finally:
        server.should_exit = True
        thread.join(SECONDS)
        listener.close()
        console.disconnect()
    assert not thread.is_alive(), "the console does not end"
