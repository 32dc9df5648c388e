"""Raw landing: every record, as it is, exactly once."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.spark.load.pipeline import jobs
from millstream.spark.load.pipeline.cluster import cores_of
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.settings import Shaping
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import SinkError, Written
from tests.spark.pipeline.conftest import Bench, rows
from tests.spark.pipeline.file_writer import FileWriter, read
from tests.waiting import SECONDS, until


def test_every_record_as_it_is(bench: Bench) -> None:
    values = [b"a", None, b"", b"\xff" * 1000]
    bench.send(values, headers=[("h", b"1")])
    bench.send([b"other"], partition=1)
    found = bench.load()
    assert found.rejected is None
    assert found.rows is not None
    assert found.rows.schema == bench.tables().rows
    assert [row["value"] for row in rows(found.rows)] == [*values, b"other"]
    assert [(row["partition"], row["offset"]) for row in rows(found.rows)] == [
        *((0, offset) for offset in range(4)),
        (1, 0),
    ]
    assert rows(found.rows)[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert {row["topic"] for row in rows(found.rows)} == {bench.topic}


def test_headers_can_be_left_out(bench: Bench) -> None:
    bench.send([b"a"], headers=[("h", b"1")])
    assert "headers" not in rows(bench.load(headers=False).rows)[0]
    assert bench.tables(headers=False).rows.names == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
    ]


def test_pieces_are_parts_of_partitions(bench: Bench) -> None:
    bench.send([b"%d" % number for number in range(100)])
    pieces = list(OffsetRange(bench.topic, 0, 10, 90).split(20))
    results = bench.results(Shaping(), pieces)
    cores = cores_of(bench.spark)
    assert [(result.piece, result.records, result.written.rows) for result in results] == [
        (None, 80 // cores, 80 // cores)
    ] * cores, "a task and an output for each core, not for each piece"
    found = read(result.written for result in results)
    assert sorted(row["offset"] for row in rows(found.rows)) == list(range(10, 90))


def test_no_pieces_and_empty_pieces(bench: Bench) -> None:
    assert bench.results(Shaping(), []) == []
    empty = bench.results(Shaping(), [OffsetRange(bench.topic, 0, 0, 0)])
    assert [(result.records, result.written.rows) for result in empty] == [(0, 0)]


def test_spark_without_its_temporary_directory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody cleans up /tmp while a load runs on for weeks."""
    bench.send([b"a", b"b"])
    monkeypatch.setattr(bench.spark.sparkContext, "_temp_dir", "/nowhere/at/all")
    assert [row["value"] for row in rows(bench.load().rows)] == [b"a", b"b"]


class FailingWriter(FileWriter):
    """Its disk is full."""

    def open(self) -> Any:
        output = super().open()
        output.finish = fail  # type: ignore[method-assign]
        return output


def fail() -> Written:
    raise SinkError("the disk is full:\nmake room")


def test_a_failed_task_names_its_range(bench: Bench) -> None:
    bench.send([b"a"])
    part = OffsetRange(bench.topic, 0, 0, 1)
    with pytest.raises(jobs.TaskFailedError) as failed:
        Pipeline(Shaping()).run(
            bench.spark, bench.settings, [part], FailingWriter(str(bench.directory)), "tag"
        )
    assert failed.value.range == part
    assert failed.value.kind == "SinkError"
    assert str(failed.value) == f"{part}: SinkError: the disk is full:\nmake room"
    assert (bench.directory / "aborted").exists()


class SlowWriter(FileWriter):
    """Says that a task runs, and then waits to be killed."""

    def open(self) -> Any:
        import time
        from pathlib import Path

        (Path(self.directory) / "running").touch()
        time.sleep(300)
        raise MillstreamError("nobody interrupted the task")


def test_another_thread_interrupts_it(bench: Bench) -> None:
    bench.send([b"a"])
    tag = uuid.uuid4().hex
    caught: list[BaseException] = []

    def work() -> None:
        try:
            pieces = [OffsetRange(bench.topic, 0, 0, 1)]
            Pipeline(Shaping()).run(
                bench.spark, bench.settings, pieces, SlowWriter(str(bench.directory)), tag
            )
        except MillstreamError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    running = bench.directory / "running"
    until(lambda: running.exists() or not thread.is_alive(), "the task runs", 2 * SECONDS)
    Pipeline.interrupt(bench.spark, tag)
    thread.join(2 * SECONDS)
    assert [type(error) for error in caught] == [jobs.JobInterruptedError]
