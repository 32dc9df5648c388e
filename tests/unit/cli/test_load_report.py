"""What a load says at its end, and where a table is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import TopicPartition
from millstream.cli.load.report import print_report, print_status, speed, summary
from millstream.cli.load.work import LoadOrder, run_load
from millstream.spark import DeltaSink
from millstream.spark.load.report import LoadReport
from millstream.spark.load.status import LoadStatus, PartitionStatus
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.kinds import missing_table
from millstream.terminal.outcome import CommandError, UsageError


def report(sink: str = "delta:lake/orders", **fields: object) -> LoadReport:
    return LoadReport("g", sink, **fields)  # type: ignore[arg-type]


def test_a_load_in_a_line() -> None:
    done = report(loaded=1, rejected=1200, records=1201, cycles=1, files=2, bytes=2048, seconds=2.0)
    assert summary(done, once=True) == (
        "1 row loaded into delta:lake/orders, 1,200 rejected; 1 cycle, 2 files, 2.0 KiB, 2.0 s, 600 records/s"
    )


def test_the_speed_is_also_told_without_the_start_of_spark() -> None:
    done = report(loaded=1200, records=1200, cycles=1, files=2, bytes=2048, seconds=6.0, spark_seconds=4.0)
    assert summary(done, once=True).endswith(
        "6.0 s, 200 records/s (600 records/s in the 2.0 s without Spark's start)"
    )
    assert done.as_dict()["spark_seconds"] == 4.0


def test_the_report_itself_counts_as_people_do() -> None:
    one = str(report(loaded=1, cycles=1, files=1, bytes=1, seconds=2.0))
    assert one == "1 row loaded into delta:lake/orders, 0 rejected (1 file, 1 byte, 1 cycle, 2.0 s)"
    assert "2,000 rows loaded" in str(report(loaded=2000)) and "(0 files, 0 bytes, 0 cycles" in str(report())


def test_only_a_table_in_a_directory_has_files() -> None:
    done = report("topic:clean", loaded=2, records=2, cycles=2, files=4, bytes=10, seconds=1.0)
    assert summary(done, once=True) == (
        "2 rows loaded into topic:clean, 0 rejected; 2 cycles, 10 B, 1.0 s, 2.0 records/s"
    )


def test_nothing_new_is_said_as_such() -> None:
    assert summary(report(seconds=0.2), once=True) == "nothing new to load into delta:lake/orders, 0.2 s"


def test_a_load_that_was_stopped() -> None:
    stopped = report(seconds=3.0, stopped=True)
    assert summary(stopped, once=False) == "nothing was loaded into delta:lake/orders, 3.0 s"
    assert summary(stopped, once=True).endswith("it was stopped before its end: run it again to continue")
    begun = report(loaded=1, records=1, cycles=1, files=1, seconds=3.0, stopped=True)
    assert "stopped" not in summary(begun, once=False), "a continuous load ends in no other way"
    assert summary(begun, once=True).endswith("it was stopped before its end: run it again to continue")


@pytest.mark.parametrize(
    ("rate", "text"), [(0.19, "0.2"), (9.94, "9.9"), (10.2, "10"), (1_234_567.8, "1,234,568")]
)
def test_some_records_a_second_are_not_none(rate: float, text: str) -> None:
    assert speed(rate) == f"{text} records/s"


def test_what_was_a_warning_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    done = report(
        loaded=5, records=5, cycles=1, seconds=1.0, ranges=(OffsetRange("t", 0, 5, 10),), notes=("rewound",)
    )
    print_report(done, once=True)
    head, row, gap, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["TOPIC", "PARTITION", "FROM", "TO", "OFFSETS"]
    assert row.split() == ["t", "0", "5", "10", "5"]
    assert gap == "" and last.startswith("5 rows loaded")


def test_a_note_does_not_repeat_the_partition_of_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    note = "t-0: goes back from 10 to 5, as it was"
    one = PartitionStatus(TopicPartition("t", 0), 10, 5, 0, 10, 10, 0, note)
    print_status(LoadStatus("g", "delta:t", (one,), ()))
    assert capsys.readouterr().out.splitlines()[1].endswith("0  goes back from 10 to 5, as it was")


# ---- slips


def test_a_directory_without_a_table(tmp_path: Path) -> None:
    (tmp_path / "orders" / "_delta_log").mkdir(parents=True)
    sink = DeltaSink(str(tmp_path / "orders"))
    assert missing_table(f"delta:{tmp_path}/orders", sink, {}) is None
    near = missing_table(f"delta:{tmp_path}/ordres", sink, {})
    assert near is not None and near.endswith(f"did you mean delta:{tmp_path}/orders?")
    far = missing_table(f"delta:{tmp_path}/else", sink, {})
    assert far is not None and far.endswith("check the directory")


@pytest.mark.parametrize("master", ["foo", "yarnn", "http://host:7077", ""])
def test_a_master_that_spark_does_not_know_starts_no_java(master: str) -> None:
    order = LoadOrder(["t"], "g", "delta:t", "127.0.0.1:1", master=master)
    with pytest.raises(UsageError, match=r"is not a Spark master: give local\[\*\]"):
        run_load(order, None, as_json=False)


@pytest.mark.parametrize(
    "master", ["local", "local[2,3]", "local-cluster[1,1,1024]", "spark://h:1", "yarn", "k8s://h", "sc://h:1"]
)
def test_masters_that_it_knows(master: str) -> None:
    order = LoadOrder(["t"], "g", "delta:t", "127.0.0.1:1", master=master)
    with pytest.raises(CommandError, match="no broker answers"):
        run_load(order, None, as_json=False)
