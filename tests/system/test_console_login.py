"""The console's login over HTTPS: who gets in, what is sent, and what attackers try."""

from __future__ import annotations

import http.client
import re
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Mount, Route

from millstream import Admin, EmbeddedBroker, Producer
from millstream.cli import main
from millstream.console.login import attempts
from millstream.console.login.login import Login
from millstream.console.login.users import StoredPassword, Users, remove_user, set_user
from millstream.console.web.access import AccessGuard, ConsoleAccess
from millstream.console.web.app import application
from millstream.console.web.tls import TlsFiles
from tests.system.console_server import PASSWORD, Answer, Browser, Served, serving
from tests.system.secured import Certificates, make_certificates
from tests.waiting import SECONDS, until

TOKEN = "a-token-of-many-characters"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def users(tmp_path: Path) -> Path:
    set_user(tmp_path / "users.json", "ann", PASSWORD)
    return tmp_path / "users.json"


@pytest.fixture
def served(
    millstream_broker: EmbeddedBroker,
    certificates: Certificates,
    users: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Served]:
    """A console with TLS, one user and a bearer token. Who guesses waits so long that a slow test sees it."""
    monkeypatch.setattr(attempts, "_FIRST_S", 60.0)
    monkeypatch.setenv("CONSOLE_TOKEN", TOKEN)
    login = Login.configured(Users(users), "${env:CONSOLE_TOKEN}")
    trusts = ssl.create_default_context(cafile=certificates.ca)
    tls = TlsFiles(certificates.server, certificates.server)
    with serving(millstream_broker.bootstrap_servers, login=login, tls=tls, trusts=trusts) as served:
        yield served


def authorized(served: Served, path: str, token: str = TOKEN) -> Answer:
    return served.get(path, headers={"Authorization": f"Bearer {token}"})


def test_a_login_and_a_logout(served: Served) -> None:
    browser = Browser(served)
    asked = browser.send("/topics/a?partition=0")
    assert (asked.status, asked.headers["location"]) == (303, "/login?next=%2Ftopics%2Fa%3Fpartition%3D0")
    done = browser.log_in(next="/topics/a?partition=0")
    assert (done.status, done.headers["location"]) == (303, "/topics/a?partition=0")
    [cookie] = [each for each in done.cookies if each.startswith(f"__Host-millstream-{served.port}=")]
    attributes = {each.strip().lower() for each in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "secure", "path=/", "max-age=43200"} <= attributes
    page = browser.send("/")
    assert page.status == 200 and "Log out" in page.text
    assert browser.send("/api/overview").status == 200
    before = dict(browser.cookies)
    assert browser.send("/logout", {"csrf": browser.csrf("/")}).headers["location"] == "/login"
    browser.cookies = before
    assert browser.send("/").status == 303, "the session has ended, also for who kept the cookie"


def test_each_login_has_a_session_of_its_own(served: Served) -> None:
    browsers = [Browser(served), Browser(served)]
    tokens = set()
    for browser in browsers:
        browser.log_in()
        tokens.add(browser.cookies[f"__Host-millstream-{served.port}"])
    assert len(tokens) == 2


def all_paths(app: Any) -> list[str]:
    """An address of every route, with a name where it takes one."""
    found = []
    for route in app.routes:
        if isinstance(route, Route):
            found.append(re.sub(r"\{[^}]+\}", "x", route.path))
        else:
            assert isinstance(route, Mount) and route.path == "/static"
    return found


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS"])
def test_every_address_needs_a_login(served: Served, method: str) -> None:
    login = Login(Users(Path("/nowhere")))
    guard: Any = application(served.console, local_only=True, access=ConsoleAccess(login, 1))
    assert isinstance(guard._app, AccessGuard)
    paths = all_paths(guard._app._app)
    assert len(paths) >= 10
    for path in {*paths, "/nowhere", "/api/nowhere", "/api", "/static", "//", "/Login", "/login/"}:
        if path in ("/login", "/healthz"):
            continue
        answer = served.get(path, method=method)
        assert answer.status == 401 or (
            answer.status == 303 and answer.headers["location"].startswith("/login")
        ), (method, path, answer)
        assert served.console.settings.servers not in answer.text
    for path in ("/static/console.css", "/healthz", "/login"):
        assert served.get(path).status == 200
    assert set(served.get("/healthz").json) == {"status", "broker"}


def test_without_a_login_nothing_is_told_about_the_cluster(served: Served) -> None:
    for path in ("/login", "/static/nothing", "/healthz", "/login?next=/topics/x"):
        for method in ("GET", "POST", "DELETE"):
            answer = served.get(path, method=method)
            assert served.console.settings.servers not in answer.text
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_bearer_token(served: Served) -> None:
    assert authorized(served, "/api/overview").status == 200
    assert set(authorized(served, "/healthz").json) > {"status", "broker", "rounds"}
    refused = authorized(served, "/api/overview", "wrong")
    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in refused.text
    assert authorized(served, "/api/overview", "").status == 401


def test_a_renewed_token_is_used_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLE_TOKEN", "another-token-of-many-characters")
    assert authorized(served, "/api/overview").status == 401
    assert authorized(served, "/api/overview", "another-token-of-many-characters").status == 200
    monkeypatch.setenv("CONSOLE_TOKEN", "")
    assert authorized(served, "/api/overview", "").status == 401


def test_guesses_of_a_token_are_limited(served: Served) -> None:
    statuses = [authorized(served, "/api/overview", f"guess-{number}").status for number in range(8)]
    assert statuses == [401] * 5 + [429] * 3
    limited = authorized(served, "/api/overview")
    assert limited.status == 429 and int(limited.headers["retry-after"]) >= 1


def test_wrong_users_and_passwords_look_the_same(served: Served) -> None:
    answers = [
        Browser(served).log_in("ann", "wrong horse"),
        Browser(served).log_in("eve", PASSWORD),
        Browser(served).log_in("", ""),
    ]
    texts = {re.sub(r'(name="csrf" value=")[^"]+', r"\1", answer.text) for answer in answers}
    assert [answer.status for answer in answers] == [401] * 3
    assert len(texts) == 1
    assert "Wrong user or password." in texts.pop()


def test_guesses_of_a_password_are_limited(served: Served) -> None:
    statuses = [Browser(served).log_in("ann", f"guess {number}").status for number in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    refused = Browser(served).log_in()
    assert refused.status == 429, "also with the right one, or guessing would go on"
    assert int(refused.headers["retry-after"]) >= 1


def test_parallel_guesses_are_counted_before_they_are_checked(served: Served) -> None:
    browsers = [Browser(served) for _ in range(12)]
    forms = [{"csrf": each.csrf(), "user": "ann", "password": "guess"} for each in browsers]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda each, form: each.send("/login", form), browsers, forms))
    statuses = [answer.status for answer in answers]
    assert sorted(statuses) == [401] * 5 + [429] * 7


def test_a_login_stalls_no_other_request(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()
    matches = StoredPassword.matches

    def slowly(self: StoredPassword, password: str) -> bool:
        begun.set()
        assert may_end.wait(SECONDS)
        return matches(self, password)

    monkeypatch.setattr(StoredPassword, "matches", slowly)
    with ThreadPoolExecutor(1) as pool:
        logging_in = pool.submit(Browser(served).log_in)
        assert begun.wait(SECONDS)
        assert served.get("/healthz").status == 200, "while the password is being checked"
        may_end.set()
        assert logging_in.result(SECONDS).status == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:{port}"},
        {"Origin": "https://127.0.0.1:{port}.evil.example"},
        {"Origin": ""},
    ],
)
def test_forms_of_other_pages_are_refused(served: Served, headers: dict[str, str]) -> None:
    browser = Browser(served)
    headers = {name: value.replace("{port}", str(served.port)) for name, value in headers.items()}
    form = {"csrf": browser.csrf(), "user": "ann", "password": PASSWORD}
    assert browser.send("/login", form, **headers).status == 403
    assert browser.log_in().status == 303
    assert browser.send("/logout", {"csrf": browser.csrf("/")}, **headers).status == 403
    assert browser.send("/").status == 200, "still logged in"


def test_forms_without_their_token_are_refused(served: Served) -> None:
    browser, other = Browser(served), Browser(served)
    browser.csrf()
    for csrf in ("", "wrong", other.csrf()):
        form = {"csrf": csrf, "user": "ann", "password": PASSWORD}
        assert browser.send("/login", form).status == 403
    browser.log_in()
    other.log_in()
    for csrf in ("", "wrong", other.csrf("/")):
        assert browser.send("/logout", {"csrf": csrf}).status == 403
    assert browser.send("/logout", {}, Sec_Fetch_Site="cross-site").status == 403
    assert browser.send("/").status == 200


def test_a_form_that_is_too_large_or_no_form(served: Served) -> None:
    browser = Browser(served)
    assert browser.send("/login", {"password": "x" * 9000}).status == 413
    headers = {"Origin": browser.origin}
    for body in ("%ff=%ff&" * 20, "&".join(f"a{number}=1" for number in range(100)), "\x00"):
        assert served.get("/login", method="POST", body=body, headers=headers).status == 403


def test_a_login_cannot_lead_elsewhere(served: Served) -> None:
    for place in ("https://evil.example/", "//evil.example", "/\\evil.example", "/a\r\nSet-Cookie: x=1"):
        done = Browser(served).log_in(next=place)
        assert (done.status, done.headers["location"]) == (303, "/")
        assert all("x=1" not in cookie for cookie in done.cookies)
    page = served.get("/login?next=/%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
    assert "<script>" not in page.text


def test_a_session_ends_with_the_password_or_the_user(served: Served, users: Path) -> None:
    browser = Browser(served)
    browser.log_in()
    assert browser.send("/").status == 200
    set_user(users, "ann", "another horse")
    assert browser.send("/").status == 303
    assert browser.log_in().status == 401
    assert browser.log_in(password="another horse").status == 303
    remove_user(users, "ann")
    assert browser.send("/").status == 303
    assert browser.log_in(password="another horse").status == 401


def test_a_damaged_file_of_users_lets_no_one_in(served: Served, users: Path) -> None:
    browser = Browser(served)
    browser.log_in()
    users.write_text("{")
    assert browser.send("/").status == 303
    assert browser.send("/api/overview").status == 401


def test_names_of_other_machines_are_refused_on_loopback_also_with_a_login(served: Served) -> None:
    answer = served.get("/api/overview", host="evil.example", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status == 421


def test_plain_http_and_old_tls_are_refused(served: Served, certificates: Certificates) -> None:
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        Served(served.console, served.port).get("/healthz")
    old = ssl.create_default_context(cafile=certificates.ca)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        Served(served.console, served.port, old).get("/healthz")
    stranger = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        Served(served.console, served.port, stranger).get("/healthz")


def test_a_renewed_certificate_is_used_without_a_restart(served: Served, certificates: Certificates) -> None:
    import trustme

    assert served.get("/healthz").status == 200
    other = trustme.CA()
    try:
        Path(certificates.server).write_text("half written")
        assert served.get("/healthz").status == 200, "the one before is used meanwhile"
        certificates.issue_server(other)
        with pytest.raises(ssl.SSLCertVerificationError):
            served.get("/healthz")
        trusts = ssl.create_default_context()
        other.configure_trust(trusts)
        assert Served(served.console, served.port, trusts).get("/healthz").status == 200
    finally:
        certificates.issue_server()
    assert served.get("/healthz").status == 200


def test_nothing_of_a_record_becomes_a_header_or_markup(
    served: Served, millstream_broker: EmbeddedBroker
) -> None:
    evil = "x\r\nSet-Cookie: a=b\r\n\r\n<script>alert(1)</script>"
    settings = {"bootstrap.servers": millstream_broker.bootstrap_servers}
    with Admin(settings) as admin, Producer(settings) as producer:
        admin.create_topic("evil-login", exist_ok=True)
        producer.send("evil-login", evil.encode(), key=evil.encode(), headers=[(evil, b"v")]).result(SECONDS)
    browser = Browser(served)
    browser.log_in()
    until(lambda: browser.send("/topics/evil-login").status == 200, "the console knows the topic")
    page = browser.send("/topics/evil-login")
    assert "<script>alert" not in page.text and "alert(1)" in page.text
    for path in ("/topics/%0d%0aSet-Cookie:%20a=b", "/groups/%0d%0aSet-Cookie:%20a=b", "/%0d%0aa:b"):
        for answer in (browser.send(path), Browser(served).send(path)):
            assert not [cookie for cookie in answer.cookies if cookie.startswith("a=")]
            assert "\r" not in answer.headers.get("location", "")


def test_the_network_needs_tls_as_well(
    tmp_path: Path, users: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["console", "--host", "0.0.0.0", "--port", "0", "--users", str(users)]
    assert main(words) == 2
    assert "give --tls-certificate and --tls-key" in capsys.readouterr().err
