"""What strangers try on a console with a login: malformed headers, idle connections, damaged files."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import EmbeddedBroker
from millstream.cli import main
from millstream.console.login import attempts
from millstream.console.login.login import Login
from millstream.console.login.users import Users, set_user
from millstream.console.web import connections
from millstream.console.web.proxies import TrustedProxies
from tests.system.console_server import PASSWORD, Browser, Served, serving
from tests.waiting import SECONDS


@pytest.fixture
def users(tmp_path: Path) -> Path:
    set_user(tmp_path / "users.json", "ann", PASSWORD)
    return tmp_path / "users.json"


@pytest.fixture
def served(millstream_broker: EmbeddedBroker, users: Path) -> Iterator[Served]:
    """A console with one user, as a network reaches it through a proxy."""
    login = Login.configured(Users(users), None)
    with serving(millstream_broker.bootstrap_servers, login=login, local_only=False) as served:
        yield served


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://a]b", "://", "http://", "\xff"])
def test_a_malformed_origin_is_refused(served: Served, origin: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = served.get("/login", method="POST", body="a=b", headers={"Origin": origin})
    assert answer.status == 403
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR], "strangers fill no log"


@pytest.mark.parametrize("host", ["[", "[::1", "a]b", "x:99999999", "x/../y", "\xff", "x@y"])
def test_a_malformed_host_breaks_nothing(served: Served, host: str) -> None:
    assert served.get("/api/overview", host=host).status == 401
    assert served.get("/nowhere", host=host).headers["location"] == "/login?next=%2Fnowhere"
    assert served.get("/login", host=host).status == 200


def test_idle_connections_keep_no_one_out(served: Served) -> None:
    """As many as the console serves at once, and more; some have begun a request."""
    idle = [socket.create_connection(("127.0.0.1", served.port), SECONDS) for _ in range(600)]
    try:
        for each in idle[500:550]:
            each.sendall(b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nuser")
        assert served.get("/healthz").status == 200
        assert Browser(served).log_in().status == 303
    finally:
        for each in idle:
            each.close()


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTT", b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nuser"]
)
def test_a_request_that_never_ends_is_closed(
    served: Served, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", served.port), SECONDS) as slow:
        ended = threading.Event()

        def trickle() -> None:
            """One byte after the other: each is sent, the whole never."""
            try:
                while not ended.wait(0.05):
                    slow.sendall(b"x")
            except OSError:
                return  # closed

        slow.sendall(begun)
        sender = threading.Thread(target=trickle if begun.startswith(b"GET") else ended.wait, daemon=True)
        sender.start()
        try:
            assert slow.recv(100) == b""
        except ConnectionResetError:
            pass  # the same
        finally:
            ended.set()
            sender.join(SECONDS)


def test_a_damaged_file_of_users_lets_no_one_in_and_is_no_bug(
    served: Served, users: Path, caplog: pytest.LogCaptureFixture
) -> None:
    browser = Browser(served)
    users.write_text("{")
    answer = browser.log_in()
    assert answer.status == 401 and "Wrong user or password." in answer.text
    assert "is damaged" in caplog.text and "Traceback" not in caplog.text


def test_behind_a_proxy_with_tls_the_session_is_for_tls_only(served: Served) -> None:
    browser = Browser(served)
    for scheme, is_secure in (("http", False), ("https", True)):
        browser.origin = f"{scheme}://127.0.0.1:{served.port}"
        done = browser.log_in()
        assert done.status == 303
        [cookie] = [each for each in done.cookies if each.startswith(f"millstream-{served.port}=")]
        assert ("secure" in cookie.lower()) == is_secure
        browser.cookies.clear()


def test_users_that_are_not_there_are_no_open_door(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt --users must not start a console that everyone on this machine can read."""
    assert main(["console", "--port", "0", "--users", str(tmp_path / "nobody.json")]) == 2
    assert "holds no users" in capsys.readouterr().err


def guesses(served: Served, forwarded: list[str], source: str = "127.0.0.1") -> list[int]:
    """The answers to wrong tokens that come through a proxy at this address."""
    statuses = []
    for hop in forwarded:
        connection = http.client.HTTPConnection(
            "127.0.0.1", served.port, timeout=SECONDS, source_address=(source, 0)
        )
        try:
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": hop}
            connection.request("GET", "/api/overview", headers=headers)
            statuses.append(connection.getresponse().status)
        finally:
            connection.close()
    return statuses


def test_behind_a_trusted_proxy_each_client_is_an_address(
    millstream_broker: EmbeddedBroker, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a client invents before its own address, or without the proxy, gains no further attempts."""
    monkeypatch.setattr(attempts, "_FIRST_S", 60.0)
    monkeypatch.setenv("CONSOLE_TOKEN", "a-token-of-many-characters")
    login = Login.configured(Users(users), "${env:CONSOLE_TOKEN}")
    proxies = TrustedProxies.of(["127.0.0.1"])
    servers = millstream_broker.bootstrap_servers
    with serving(servers, login=login, local_only=False, proxies=proxies) as served:
        limited = [401] * 5 + [429] * 2
        assert guesses(served, [f"198.51.100.{number}, 203.0.113.7" for number in range(7)]) == limited
        for client, status in (("203.0.113.7", 429), ("203.0.113.8", 303)):
            browser = Browser(served)
            form = {"csrf": browser.csrf(), "user": "ann", "password": PASSWORD}
            assert browser.send("/login", form, X_Forwarded_For=client).status == status, client
        around = guesses(served, [f"203.0.113.{number}" for number in range(20, 27)], source="127.0.0.2")
        assert around == limited, "not the proxy"


def test_without_a_trusted_proxy_no_header_is_believed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_FIRST_S", 60.0)
    for number in range(6):
        browser = Browser(served)
        form = {"csrf": browser.csrf(), "user": "ann", "password": "guess"}
        answer = browser.send("/login", form, X_Forwarded_For=f"203.0.113.{number}")
    assert answer.status == 429
