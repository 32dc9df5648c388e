"""``millstream load`` as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.admin import Admin
from millstream.cli import main
from millstream.cli.load.options import read_size
from millstream.cli.load.progress import clock, values
from millstream.model import TopicPartition
from millstream.producer import Producer
from millstream.spark.load.engine.watching import LoadSnapshot
from millstream.terminal.outcome import UsageError
from tests.conftest import NewTopic
from tests.waiting import SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def topic(new_topic: NewTopic, producer: Producer) -> str:
    """Ten orders in two partitions; one is no JSON, one costs nothing."""
    name = new_topic(partitions=2)
    for number in range(10):
        text = json.dumps({"id": number, "price": 0.0 if number == 4 else 1.5})
        value = b"what?" if number == 7 else text.encode()
        producer.send(name, value, partition=number % 2)
    producer.flush()
    return name


class Typed:
    """The command line of one test: a group and a table of its own."""

    def __init__(self, servers: str, group: str, directory: Path, capsys: Printed) -> None:
        self._capsys = capsys
        self.servers = servers
        self.group = group
        self.to = f"delta:{directory}/orders"

    def __call__(self, *words: str, code: int = 0) -> str:
        assert main(["load", *words, "--to", self.to, "-b", self.servers]) == code
        out, err = self._capsys.readouterr()
        return err if code else out

    def run(self, topic: str, *words: str, code: int = 0) -> str:
        return self(topic, "--group", self.group, *words, code=code)

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def typed(spark: SparkSession, bootstrap_servers: str, group: str, tmp_path: Path, capsys: Printed) -> Typed:
    """The commands run in this process, and find its Spark."""
    del spark
    return Typed(bootstrap_servers, group, tmp_path, capsys)


SHAPE = ("--schema", "id LONG, price DOUBLE", "--check", "price > 0")


def test_load_status_rejected_and_replay(typed: Typed, topic: str, admin: Admin) -> None:
    before = typed("status", topic, "--group", typed.group)
    assert before.count("not loaded yet") == 2
    out = typed.run(topic, "--once", *SHAPE)
    assert f"8 rows loaded into {typed.to}, 2 rejected; 1 cycle" in out
    assert [line.split()[1:] for line in out.splitlines()[1:3]] == [
        ["0", "0", "5", "5"],
        ["1", "0", "5", "5"],
    ]

    found = typed.json("status", topic, "--group", typed.group)
    assert found["lag"] == 0 and found["lost"] == []
    assert [(one["loaded"], one["committed"], one["end"], one["note"]) for one in found["partitions"]] == [
        (5, 5, 5, "")
    ] * 2

    rows = typed.json("rejected")
    assert sorted((row["partition"], row["offset"], row["value"]) for row in rows) == [
        (0, 2, '{"id": 4, "price": 0.0}'),
        (1, 3, "what?"),
    ]
    assert any("price > 0" in row["reason"] for row in rows)
    lines = typed("rejected", "--limit", "1").splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["REJECTED", "1", "1"], "counts of all, by reason"
    assert any("price > 0" in line for line in lines[:3])
    assert (lines[3], len(lines)) == ("", 6), "then the newest row"

    looser = ("--schema", "id LONG, price DOUBLE", "--check", "price >= 0")
    assert "1 of 2 rejected rows moved" in typed("replay", "--group", typed.group, *looser)
    assert typed.json("replay", "--group", typed.group, *looser)["readmitted"] == 0
    assert len(typed.json("rejected")) == 1


def test_the_table_remembers_what_it_is_partitioned_by(typed: Typed, topic: str, producer: Producer) -> None:
    """A load and a replay without the option derive the column as the first load did."""
    typed.run(topic, "--once", *SHAPE, "--partition-by", "date(_timestamp) AS day")
    producer.send(topic, b'{"id": 99, "price": 9.0}').result()
    assert "1 row loaded" in typed.run(topic, "--once", *SHAPE)
    looser = ("--schema", "id LONG, price DOUBLE, note STRING", "--check", "price >= 0")
    assert "--add-columns" in typed("replay", "--group", typed.group, *looser, code=1)
    assert "1 of 2 rejected rows moved" in typed("replay", "--group", typed.group, *looser, "--add-columns")
    said = typed.run(topic, "--once", *SHAPE, "--partition-by", "hour(_timestamp) AS day", code=1)
    assert "is partitioned by (date(_timestamp) AS day), and cannot be" in said
    assert "leave out --partition-by, or load into another table" in said


def test_a_reset_is_seen_and_followed(typed: Typed, topic: str, admin: Admin) -> None:
    report = json.loads(typed.run(topic, "--once", "--json"))
    assert (report["loaded"], report["cycles"], report["stopped"]) == (10, 1, False)
    admin.reset_offsets(typed.group, offset=2, topics=topic)
    assert typed("status", topic, "--group", typed.group).count("goes back from 5 to 2") == 2
    out = typed.run(topic, "--once")
    assert "6 rows loaded" in out and "note:" not in out, "a rewind was a warning when it began"


def test_lost_ranges_are_listed(typed: Typed, topic: str, admin: Admin) -> None:
    typed.run(topic, "--once")
    admin.reset_offsets(typed.group, offset=2, topics=topic)
    admin.delete_records({TopicPartition(topic, 0): 4})
    typed.run(topic, "--once")
    admin.reset_offsets(typed.group, offset=3, topics=topic)
    assert typed.json("status", topic, "--group", typed.group)["lost"] == [], "it was loaded before"


def test_errors_are_one_sentence(typed: Typed, topic: str) -> None:
    assert "did you mean" in typed.run(f"{topic}x", "--once", code=1)
    assert "--max-bytes 'much'" in typed.run(topic, "--max-bytes", "much", code=2)
    assert "starting is 'soon'" in typed.run(topic, "--starting", "soon", code=2)
    assert "price" in typed.run(topic, "--schema", "price DUBLE", "--once", code=2)
    assert "schema" in typed("replay", "--group", typed.group, code=2)
    assert "is not a known sink" in _to(typed, "csv:x", topic)


def test_a_misspelt_table(typed: Typed, topic: str, tmp_path: Path) -> None:
    typed.run(topic, "--once", *SHAPE)
    typed.to = f"delta:{tmp_path}/ordres"
    assert f"did you mean delta:{tmp_path}/orders?" in typed("rejected", code=1)
    assert "there is no table" in typed("replay", "--group", typed.group, *SHAPE, code=1)


def _to(typed: Typed, address: str, topic: str) -> str:
    typed.to = address
    return typed.run(topic, "--once", code=2)


@pytest.fixture
def starting(
    bootstrap_servers: str, group: str, topic: str, tmp_path: Path
) -> Iterator[subprocess.Popen[str]]:
    """A load in a process of its own, with directories of its own for the table and for temporary files."""
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "millstream", "load", topic, "--group", group),
            *("--to", f"delta:{tmp_path}/t", "-b", bootstrap_servers, "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path), "TMPDIR": str(tmp_path / "temporary")},
        start_new_session=True,  # so that all it has started can be found
    )
    yield process
    process.kill()
    process.wait()


def started_by(process: subprocess.Popen[str]) -> set[str]:
    """The processes of its session that run, by their command lines."""
    listed = subprocess.run(
        ["ps", "-ww", "-s", str(process.pid), "-o", "args="], capture_output=True, text=True, check=False
    )
    return {line for line in listed.stdout.splitlines() if "<defunct>" not in line}


def test_ctrl_c_while_java_starts_leaves_nothing(
    starting: subprocess.Popen[str], admin: Admin, group: str, tmp_path: Path
) -> None:
    def has_java() -> bool:
        return any("SparkSubmit" in line or "spark-submit" in line for line in started_by(starting))

    until(lambda: starting.poll() is not None or has_java(), "Java is being started", 3 * SECONDS)
    os.killpg(starting.pid, signal.SIGINT)  # as a terminal does
    err = starting.communicate(timeout=3 * SECONDS)[1]
    assert (starting.returncode, err) == (128 + signal.SIGINT, "")
    until(lambda: not started_by(starting), "all that it started has ended", SECONDS)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert group not in {one.group_id for one in admin.list_groups()}


def test_a_signal_ends_it_cleanly(
    starting: subprocess.Popen[str], bootstrap_servers: str, group: str
) -> None:
    """Before Spark has come up: no one has to wait for that."""
    process = starting
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        joined = until(
            lambda: (
                process.poll() is not None or group in {one.group_id for one in admin.list_groups(["Stable"])}
            ),
            "the load is in its group",
            3 * SECONDS,
        )
        assert joined and process.poll() is None, process.communicate()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=3 * SECONDS)
        assert process.returncode == 128 + signal.SIGTERM, err
        assert json.loads(out)["stopped"] is True
        assert group not in {one.group_id for one in admin.list_groups(["Stable"])}, "it has left"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1024", 1024), ("64k", 65536), ("1MiB", 1 << 20), ("1.5 GB", 3 << 29), ("2t", 2 << 40), (None, None)],
)
def test_sizes(text: str | None, expected: int | None) -> None:
    assert read_size(text, "--max-bytes") == expected


@pytest.mark.parametrize("text", ["", "many", "-1", "0", "1x", "1 MiB/s"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="--max-bytes"):
        read_size(text, "--max-bytes")


def test_what_the_bar_shows() -> None:
    shown = values(LoadSnapshot("loading", 1000, 3, 2000, 6000, 2, 1, 2.0))
    assert shown["description"] == "loading"
    assert (shown["completed"], shown["total"]) == (2000, 8000)
    assert shown["numbers"] == "1,000 rows, 3 rejected, 1,000/s, lag 6,000, 0:06 left"
    assert values(LoadSnapshot())["total"] is None
    assert clock(3723) == "1:02:03"
