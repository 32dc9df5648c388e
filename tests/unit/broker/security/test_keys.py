"""The keys that sign tokens: a slow or hostile address stalls no one, and a changed file is noticed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from millstream.broker.security import keys
from millstream.broker.security.keys import KeySet
from millstream.errors import ConfigError
from tests.waiting import SECONDS, until


def document(*key_ids: str) -> bytes:
    made = []
    for key_id in key_ids:
        public = ec.generate_private_key(ec.SECP256R1()).public_key()
        made.append({**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(public)), "kid": key_id})
    return json.dumps({"keys": made}).encode()


@contextmanager
def served(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The address of a server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            thread.join(SECONDS)


def send(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(document("one"))
    found = KeySet(path.as_uri())
    before = found.find("one")
    assert before is not None and found.find("two") is None
    path.write_bytes(document("one", "two"))
    after = found.find("one")
    assert after is not None and after.key != before.key, "the id is the same, and the key is not"
    path.write_bytes(b"[]")
    assert found.find("two") is not None, "a damaged document leaves the keys as they were"


def test_a_hanging_address_stalls_no_token_whose_key_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_RETRY_SECONDS", -1)
    hang, asked = threading.Event(), threading.Semaphore(0)
    bodies = [document("one")]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.release()
        if bodies:
            send(handler, bodies.pop())
        else:
            hang.wait(SECONDS)

    with served(answer) as url:
        found = KeySet(url)
        assert found.find("one") is not None
        threads = [threading.Thread(target=found.find, args=("made-up",)) for _ in range(keys._WAITING)]
        for thread in threads:
            thread.start()
        assert asked.acquire(timeout=SECONDS) and asked.acquire(timeout=SECONDS), "two requests"
        until(lambda: found._places._value == 0, "two logins to wait")
        assert found.find("one") is not None, "it does not wait"
        assert found.find("made-up, too") is None, "nor do more than two with unknown keys"
        hang.set()
        for thread in threads:
            thread.join(SECONDS)


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/keys", "http://localhost:1/"])
def test_redirects_lead_to_https_only(target: str, caplog: pytest.LogCaptureFixture) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with served(answer) as url:
        assert KeySet(url).find("one") is None
    assert "which is not https://" in caplog.text


def test_a_document_is_bounded_in_size_and_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served(lambda handler: send(handler, b" " * (keys.MAX_DOCUMENT_BYTES + 10))) as url:
        assert KeySet(url).find("one") is None
    assert "larger than" in caplog.text
    monkeypatch.setattr(keys, "FETCH_SECONDS", 0.2)
    stop = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not stop.wait(0.05):
                handler.wfile.write(b" ")
        except OSError:
            stop.set()

    with served(drip) as url:
        assert KeySet(url).find("one") is None
        until(lambda: "longer than" in caplog.text, "the broker to give up")
        stop.set()


def test_http_is_for_loopback_only() -> None:
    with pytest.raises(ConfigError, match="must be https"):
        KeySet("http://keys.example/jwks")
