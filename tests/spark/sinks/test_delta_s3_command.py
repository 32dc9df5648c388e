"""``millstream load`` into S3 with Spark, by the environment: its secret is in nothing that is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from millstream import EmbeddedBroker
from tests.spark.sinks.s3 import S3, SECRET

COMMAND = [sys.executable, "-c", "from millstream.cli import main; main()"]
LOAD_SECONDS = 200


def test_a_load_its_status_and_its_rejected_rows(s3: S3, tmp_path: Path) -> None:
    address = f"{s3.directory()}/orders"
    given = {
        name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}": value
        for name, value in s3.options.items()
    }

    def run(*words: str, typed: str = "") -> str:
        command = [*COMMAND, *words, "--bootstrap-servers", broker.bootstrap_servers]
        done = subprocess.run(
            command,
            env={**os.environ, **given},
            input=typed,
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return done.stdout

    with EmbeddedBroker(tmp_path / "broker") as broker:
        run("topic", "create", "orders", "--partitions", "1")
        run("produce", "orders", typed="".join(f'{{"id": {number}}}\n' for number in range(100)) + "bad\n")
        events = tmp_path / "events"
        events.mkdir()
        logged = ["spark.eventLog.enabled=true", f"spark.eventLog.dir=file://{events}"]
        logged.append("spark.eventLog.compress=false")
        conf = [word for one in logged for word in ("--conf", one)]
        to = ["--to", f"delta:{address}"]
        shaped = ["--value-format", "json", "--schema", "id BIGINT"]
        run("load", "orders", "--group", "lake", *to, "--once", *shaped, *conf)
        assert "101" in run("load", "status", "orders", "--group", "lake", *to)
        assert "not JSON" in run("load", "rejected", *to)
    rows = pa.table(DeltaTable(address, storage_options=s3.options).scan())
    assert sorted(rows["id"].to_pylist()) == list(range(100))
    written = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    assert b"SparkListenerJobStart" in written
    assert SECRET.encode() not in written
