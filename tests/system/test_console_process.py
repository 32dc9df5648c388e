"""``millstream console`` as a process: starting, ending, who may look, and brokers that come and go."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from millstream import Admin, Consumer, EmbeddedBroker, OffsetAndMetadata, TopicPartition
from millstream.console.cluster_snapshot import CALL_SECONDS
from millstream.spark.load.decisions.commit_metadata import CommitMetadata
from tests.system.cli_process import Cli
from tests.system.console_server import Served, serving
from tests.waiting import SECONDS, until


@contextmanager
def nobody_there() -> Iterator[str]:
    """An address at which nobody listens, and nobody can meanwhile."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


def get(url: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and what was said on standard error; the process is gone after this, whatever it did."""
    try:
        _, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_serves_until_a_signal(
    millstream_broker: EmbeddedBroker, millstream_topic: str, number: signal.Signals, code: int
) -> None:
    process = Cli(millstream_broker.bootstrap_servers).start("console", "--port", "0", "--json")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["pid"] == process.pid
        until(lambda: get(ready["url"], "/")[0] == 200, "the first look at the broker")
        status, text = get(ready["url"], "/")
        assert (status, millstream_topic in text) == (200, True)
        assert "default-src" not in text
        process.send_signal(number)
    finally:
        code_and_words = ended(process)
    assert code_and_words == (code, "")


def test_a_signal_lets_those_go_who_wait_for_brokers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        process = Cli(f"127.0.0.1:{silent.getsockname()[1]}").start("console", "--port", "0")
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("millstream console is ready on http://127.0.0.1:")
            url = next(word for word in line.split() if word.startswith("http")).rstrip(",")
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)
            connection.request("GET", "/")
            assert get(url, "/healthz")[0] == 200, "the one before is being answered by now"
            process.send_signal(signal.SIGTERM)
            assert connection.getresponse().status == 503, "an answer, not a connection that is cut"
            connection.close()
        finally:
            code, _ = ended(process)
    assert code == 143


def test_without_its_packages_it_says_how_to_get_them() -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from millstream.cli import main; sys.exit(main(['console', '--port', '0']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 1
    assert "pip install 'millstream[console]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_names_headers_and_methods(millstream_broker: EmbeddedBroker) -> None:
    with serving(millstream_broker.bootstrap_servers) as served:
        for host in ("localhost", f"localhost:{served.port}", "[::1]:1234", "127.0.0.1"):
            assert served.get("/healthz", host=host).status == 200
        refused = served.get("/api/overview", host="evil.example")
        assert refused.status == 421
        assert "cluster" not in refused.text
        for path in ("/", "/api/overview", "/static/console.js", "/nowhere"):
            headers = served.get(path).headers
            assert headers["content-security-policy"].startswith("default-src 'self'; ")
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in headers
        assert served.get("/").headers["cache-control"] == "no-store"
        assert served.get("/", method="POST").status == 405
        assert served.get("/api/topics", method="DELETE").status == 405
        assert served.get("/", method="HEAD").text == ""
        for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py"):
            assert served.get(path).status == 404


@pytest.mark.parametrize("path", ["/api/nope", "/api", "/api/topic", "/api/topics/t/nope", "/api/overview/x"])
def test_addresses_for_scripts_that_lead_nowhere(millstream_broker: EmbeddedBroker, path: str) -> None:
    with serving(millstream_broker.bootstrap_servers) as served:
        answer = served.get(path)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
        assert answer.json["error"] == "There is nothing at this address."
        assert set(answer.json["near"]) <= {
            f"/api/{each}" for each in ("overview", "topics", "groups", "loads")
        }
        assert path != "/api/topic" or answer.json["near"][0] == "/api/topics"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_methods_for_scripts(millstream_broker: EmbeddedBroker) -> None:
    with serving(millstream_broker.bootstrap_servers) as served:
        for path in ("/api/topics", "/healthz"):
            answer = served.get(path, method="DELETE")
            assert answer.json == {"error": "DELETE is not allowed: this address is read-only, use GET."}
            assert "GET" in answer.headers["allow"]
        assert "GET" in served.get("/", method="POST").headers["allow"]
        assert served.get("/apis").headers["content-type"].startswith("text/html"), "it only looks like one"


def test_a_defect_is_answered_and_logged(
    millstream_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(millstream_broker.bootstrap_servers) as served:

        async def fail() -> None:
            raise ValueError("odd")

        monkeypatch.setattr(served.console, "view", fail)
        answer = served.get("/")
        assert answer.status == 500
        assert "odd" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        for_scripts = served.get("/api/overview")
        assert (for_scripts.status, list(for_scripts.json)) == (500, ["error"])
        assert "odd" not in for_scripts.text
    assert "the console failed at /" in caplog.text
    assert "the console failed at /api/overview" in caplog.text


def trouble(served: Served) -> str:
    found = served.ok("/api/overview").json["trouble"]
    assert found is None or isinstance(found, str)
    return found or ""


def test_a_broker_that_goes_and_comes_back(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        address = broker.bootstrap_servers
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topic("kept")
        with serving(address) as served:
            served.until_round()
            assert trouble(served) == ""
            broker.stop()
            until(lambda: trouble(served), "the console to notice")
            reason = f"No broker answers at {address} (connection refused): start one with"
            until(lambda: trouble(served).startswith(reason), lambda: trouble(served))
            page = served.page("/")
            assert "kept" in page.text, "the last data stay"
            assert "it is updated as soon as a broker answers" in page.text
            assert served.ok("/healthz").json["broker"] == "down"
            assert served.get("/topics/kept").status == 200
            with EmbeddedBroker(tmp_path, listen=address):
                until(lambda: not trouble(served), "the console to recover")
                assert served.ok("/healthz").json["broker"] == "up"


def test_a_page_with_tables_does_not_wait_for_a_broker_that_went(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    table = f"delta:{tmp_path / 'orders'}"
    with EmbeddedBroker(tmp_path / "data") as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(settings) as admin:
            admin.create_topic("orders")
        place = TopicPartition("orders", 0)
        with Consumer({**settings, "group.id": "loads", "enable.auto.commit": False}) as consumer:
            consumer.assign([place])
            consumer.commit({place: OffsetAndMetadata(0, str(CommitMetadata("0001-cycle", table)))})
        with serving(broker.bootstrap_servers, tables=[table]) as served:
            served.until_round()
            assert "0001-cycle" in served.page("/groups/loads").text
            broker.stop()
            began = time.monotonic()
            until(lambda: served.ok("/api/loads").json["loads"][0]["note"], "why there is no status")
            assert time.monotonic() - began < 5 * CALL_SECONDS


def test_no_broker_from_the_start() -> None:
    with nobody_there() as address, serving(address) as served:
        answer = served.get("/")
        assert answer.status == 503
        until(lambda: "connection refused" in served.get("/").text, "the reason")
        page = served.get("/").page
        assert f"No broker answers at {address}" in page.text
        assert "millstream broker" in page.text
        assert served.get("/api/topics/x").status == 503
        assert served.get("/healthz").json["broker"] == "down"
