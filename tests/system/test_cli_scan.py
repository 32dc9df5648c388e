"""``millstream scan``: a range of a topic printed, or in a file that appears when it is complete."""

from __future__ import annotations

import csv
import gc
import json
import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from millstream import Consumer, Producer, TopicPartition
from millstream.cli import main
from tests.conftest import NewTopic
from tests.kafka.logins import properties_of
from tests.system.cli_process import COMMAND_SECONDS, Cli


class Command:
    """Runs the command in this process: starting one takes longer than all that it does."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        path = properties_of(servers)
        self._login = () if path is None else ("--command-config", str(path))
        self._servers = servers
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What it prints on standard output, or as its error."""
        assert main(["scan", *arguments, "-b", self._servers, *self._login]) == code
        done = self._capsys.readouterr()
        return done.err if code else done.out


@pytest.fixture
def command(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(bootstrap_servers, capsys)


@pytest.fixture
def orders(new_topic: NewTopic, producer: Producer) -> str:
    """A hundred records in two partitions, one second apart."""
    topic = new_topic(partitions=2, name="orders")
    for number in range(100):
        value = {"id": number, "price": number / 2, "c": {"x": f"ä{number}"}}
        producer.send(
            topic,
            json.dumps(value).encode(),
            key=b"k%d" % number,
            partition=number % 2,
            timestamp=1_700_000_000_000 + 1000 * number,
            headers=[("h", b"\xff")],
        )
    producer.flush()
    return topic


def test_a_table(command: Command, orders: str) -> None:
    lines = command(orders, "--from", "-1", "--partition", "1").splitlines()
    assert [each.split()[:4] for each in lines] == [
        ["PARTITION", "OFFSET", "TIMESTAMP", "KEY"],
        ["1", "49", "2023-11-14T22:14:59.000Z", "k99"],
    ]
    chosen = command(
        *(orders, "--value-format", "json", "--key-format", "string", "--select", "id, c.x AS x, _key"),
        *("--where", "price >= 40 AND _key IN ('k80', 'k91') OR id = 3"),
    )
    assert sorted(line.split() for line in chosen.splitlines()) == sorted(
        [["ID", "X", "_KEY"], ["3", "ä3", "k3"], ["80", "ä80", "k80"], ["91", "ä91", "k91"]]
    )
    assert len(command(orders, "--limit", "7").splitlines()) == 1 + 7
    assert command(orders, "--limit", "0", "--select", "key") == "KEY\n"


def test_bounds(command: Command, orders: str, bootstrap_servers: str, group: str) -> None:
    def offsets(*arguments: str) -> list[tuple[int, int]]:
        rows = map(json.loads, command(orders, "--format", "json", *arguments).splitlines())
        return sorted((row["partition"], row["offset"]) for row in rows)

    assert offsets("--from", "@1700000010000", "--until", "@1700000014000") == [
        (0, 5),
        (0, 6),
        (1, 5),
        (1, 6),
    ]
    assert offsets("--from", "48", "-p", "1") == [(1, 48), (1, 49)]
    assert offsets("--from", "1 hour ago") == []
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(orders, 0): 2, TopicPartition(orders, 1): 50})
    assert offsets("--until", "committed", "--group", group, "-p", "0") == [(0, 0), (0, 1)]
    assert offsets("--from", "committed", "--group", group, "--until", "3") == [(0, 2)]


def test_files(command: Command, orders: str, tmp_path: Path) -> None:
    parquet = tmp_path / "o.parquet"
    said = command(orders, "--value-format", "json", "--to", f"parquet:{parquet}")
    assert said.startswith(f"100 rows of {orders} written to {parquet} (")
    table = pq.read_table(parquet)
    assert sorted(table["id"].to_pylist()) == list(range(100)) and table["c"][0].as_py()["x"].startswith("ä")
    lines = tmp_path / "o.json"
    report = json.loads(command(orders, "--to", f"json:{lines}", "--headers", "--json"))
    assert report == {"topic": orders, "rows": 100, "file": str(lines), "bytes": lines.stat().st_size}
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert rows[0]["headers"] == [{"key": "h", "value": {"base64": "/w=="}}]
    assert rows[0]["timestamp"].startswith("2023-11-14T22:13:2")
    text = tmp_path / "o.csv"
    command(orders, "--value-format", "json", "--to", f"csv:{text}")
    with text.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 100 and json.loads(found[7]["c"])["x"] == f"ä{found[7]['id']}"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["o.csv", "o.json", "o.parquet"]
    assert text.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_failed_scan_leaves_the_file_as_it_was(
    command: Command, orders: str, producer: Producer, tmp_path: Path
) -> None:
    producer.send(orders, b"no json", partition=0).result(60)
    before = tmp_path / "o.parquet"
    before.write_bytes(b"before")
    said = command(orders, "--value-format", "json", "--to", f"parquet:{before}", code=1)
    assert f"the value of {orders}-0 at offset 50 cannot be read as json" in said
    assert "--bad-values null" in said and "bad_values" not in said
    assert before.read_bytes() == b"before" and list(tmp_path.iterdir()) == [before]
    gc.collect()  # Arrow's writer would end the file now
    command(orders, "--value-format", "json", "--to", f"parquet:{before}", "--bad-values", "null")
    assert pq.read_table(before)["id"].null_count == 1


def test_slips(command: Command, orders: str) -> None:
    as_json = ("--value-format", "json")
    for arguments, told in [
        (("--to", "excel:x"), "write parquet:FILE, csv:FILE or json:FILE"),
        (("--value-format", "jason"), "did you mean json?"),
        (("--value-format", "csv"), "--value-format csv needs a --schema"),
        (("--where", "key = 'a'"), "key holds bytes: decode it, as with --key-format string"),
        (("--where", "timestamp > 5"), "choose times with --from and --until"),
        ((*as_json, "--where", "pric > 1"), "did you mean price?"),
        ((*as_json, "--where", "upper(id) = 1"), "is not understood: compare columns with constants"),
        ((*as_json, "--select", "idd"), "did you mean id?"),
        ((*as_json, "--select", "c.z"), "there is no field 'z' in c.z: there are x"),
        ((*as_json, "--select", "id, id"), "names id twice"),
        ((*as_json, "--select", "sum(id)"), "is not a list of columns"),
        (("--from", "5000"), "--from is 5000, and the longest partition ends at 50"),
        (("--from", "5", "--until", "2"), "is after --until 2"),
        (("--until", "committed"), "--until=committed needs the group whose offsets count: give --group"),
        (("--format", "xml"), "choose table, json or csv"),
        (("--property", "group.id=x"), "use --group"),
    ]:
        said = command(orders, *arguments, code=2)
        assert said.startswith("error: ") and told in said, said
    assert "did you mean" in command(orders[:-1], code=1)
    assert "is a directory" in command(orders, "--to", "csv:/", code=1)
    assert "cannot write /nowhere/x" in command(orders, "--to", "csv:/nowhere/x", code=1)


def test_a_pipe_and_ctrl_c(bootstrap_servers: str, orders: str, producer: Producer, tmp_path: Path) -> None:
    cli = Cli(bootstrap_servers)
    head = subprocess.run(
        f"{' '.join(cli.command('scan', orders, '--to', 'json:-'))} | head -n 1",
        shell=True,
        capture_output=True,
        env=cli.environment,
        timeout=COMMAND_SECONDS,
        check=True,
    )
    assert json.loads(head.stdout)["topic"] == orders and not head.stderr
    for _ in range(100):
        producer.send(orders, bytes(10_000))
    producer.flush()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = subprocess.Popen(cli.command("scan", orders, "--to", f"json:{pipe}"), env=cli.environment)
    try:
        with pipe.open("rb") as reading:
            assert reading.read(1) == b"{"  # and no more: the command waits until there is room
            process.send_signal(signal.SIGINT)
            assert process.wait(COMMAND_SECONDS) == 130
    finally:
        process.kill()
        process.wait()
