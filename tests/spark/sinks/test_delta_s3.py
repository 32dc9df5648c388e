"""The Delta sink on S3: the suite that every sink passes, and what only an object store does."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from deltalake import DeltaTable

from benchmarks.peers import free_port
from millstream.spark.sinks.base import SinkError, SinkRefusedError, SinkUnavailableError
from millstream.spark.sinks.delta.per_topic import DeltaTopicsSink
from millstream.spark.sinks.delta.places.place import place_of
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.conformance import SinkConformance
from tests.spark.sinks.driving import Driver, nowhere, offsets, step
from tests.spark.sinks.s3 import S3, SECRET
from tests.spark.sinks.site import Site
from tests.spark.sinks.test_delta import DeltaSite


class TestDeltaOnS3(SinkConformance):
    @pytest.fixture
    def site(self, s3: S3, monkeypatch: pytest.MonkeyPatch) -> DeltaSite:
        return DeltaSite(s3.directory(), monkeypatch, s3.options)

    @pytest.mark.parametrize("seed", [0])
    def test_random_walk(self, site: Site, seed: int) -> None:
        """One walk: each takes as long as twenty other tests here."""
        super().test_random_walk(site, seed)


def sink_at(s3: S3, path: str, **changed: str) -> DeltaSink:
    return DeltaSink(path, storage_options={**s3.options, **changed})


def data_files(s3: S3, path: str) -> set[str]:
    return {found.name for found in place_of(path, s3.options).rglob("*.parquet")}


def test_the_identity_of_a_table_has_no_options(s3: S3) -> None:
    sink = sink_at(s3, "s3a://lake/orders/")
    assert sink.names == ("delta:s3://lake/orders", "delta:s3a://lake/orders/")


def test_no_secret_is_shown(s3: S3, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    path = s3.directory() + "/orders"
    driver = Driver(sink_at(s3, path)).prepared()
    driver.load(step(0, 0, 5, bad={3}))
    writer = driver.sink.writer("c")
    for shown in (
        repr(driver.sink),
        driver.sink.name,
        repr(writer),
        repr(pickle.loads(pickle.dumps(writer))),
    ):
        assert SECRET not in shown
    assert SECRET not in caplog.text
    history = DeltaTable(path, storage_options=s3.options).history()
    assert SECRET not in str(history)


def test_the_environment_is_enough(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}", value)
    path = s3.directory() + "/orders"
    Driver(DeltaSink(path)).prepared().load(step(0, 0, 5))
    monkeypatch.undo()
    assert Driver(sink_at(s3, path)).prepared().next_offset() == 5


def test_a_table_for_each_topic(s3: S3) -> None:
    sink = DeltaTopicsSink(s3.directory() + "/{topic}", storage_options=s3.options)
    for topic in ("orders", "payments"):
        Driver(sink.table(topic)).prepared().load(step(0, 0, 5))
    assert sink.topics() == ["orders", "payments"]


def test_files_that_no_commit_names_are_removed(s3: S3) -> None:
    path = s3.directory() + "/orders"
    driver = Driver(sink_at(s3, path)).prepared()
    driver.load(step(0, 0, 5))
    kept = data_files(s3, path)
    cycle = driver.plan(step(0, 5, 9))
    driver.sink.abandon(cycle.cycle_id, cycle.written)
    assert data_files(s3, path) == kept
    driver.plan(step(0, 5, 9))
    assert driver.sink.vacuum(timedelta(days=1)) == 0  # type: ignore[attr-defined]
    assert driver.sink.vacuum(timedelta(seconds=-5)) == 1  # type: ignore[attr-defined]
    assert data_files(s3, path) == kept


def test_files_of_a_commit_that_may_still_arrive_are_kept(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is given up, the log does not have it, and then the store does it after all."""
    path = s3.directory() + "/orders"
    driver = Driver(sink_at(s3, path)).prepared()
    cycle = driver.plan(step(0, 0, 5))
    late: list[Any] = []
    commit = DeltaTable.create_write_transaction

    def delayed(handle: DeltaTable, *args: Any, **more: Any) -> None:
        if not handle.table_uri.rstrip("/").endswith("orders"):
            commit(handle, *args, **more)
            return
        late.append(lambda: commit(handle, *args, **more))
        raise OSError("operation timed out")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", delayed)
        with pytest.raises(SinkError, match="timed out"):
            driver.sink.commit(cycle, nowhere)
    driver.sink.abandon(cycle.cycle_id, cycle.written)
    late[0]()
    site = DeltaSite(path.removesuffix("/orders"), monkeypatch, s3.options)
    assert offsets(site.rows()) == list(range(5))
    assert driver.next_offset() == 5


def test_a_bucket_that_is_missing(s3: S3) -> None:
    with pytest.raises(SinkRefusedError, match=r"s3://none/orders.*no such bucket. Create it"):
        Driver(sink_at(s3, "s3://none/orders")).prepared()


def test_an_endpoint_that_does_not_answer(s3: S3) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SinkUnavailableError, match=r"cannot be reached. Check the endpoint"):
        Driver(sink_at(s3, "s3://lake/orders", aws_endpoint_url=nobody)).prepared()


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_credentials_that_are_refused(s3: S3, refusing: str) -> None:
    with pytest.raises(SinkRefusedError, match="refuses the credentials") as refused:
        Driver(sink_at(s3, "s3://lake/orders", aws_endpoint_url=refusing)).prepared()
    assert SECRET not in str(refused.value)
