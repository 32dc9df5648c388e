"""The examples of the help of loads, as they stand: in this process, which has a Spark already.

What would go on until Ctrl-C is told to end when everything is loaded, and PostgreSQL is left out: the
database of the example is nobody's.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Admin, EmbeddedBroker, Producer
from millstream.cli import main
from tests.help_examples import all_examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pasted() -> list[str]:
    return [line for line in all_examples() if "millstream load" in line and "postgresql:" not in line]


def test_they_work_when_pasted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an order in which a table is there before it is looked at."""
    del spark
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.ddl").write_text("c STRING")
    (tmp_path / "p.sql").write_text("SELECT DISTINCT c FROM batch")
    loads = [line for line in pasted() if re.match(r"millstream load (?!status|rejected|replay)", line)]
    with EmbeddedBroker() as broker:
        monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        fill(broker.bootstrap_servers)
        for line in [*loads, *(line for line in pasted() if line not in loads)]:
            words = shlex.split(line.partition(" | ")[0])[1:]
            if line in loads and "--once" not in words:
                words.append("--once")
            assert main(words) == 0, f"{line}: {capsys.readouterr().err}"
            assert "Traceback" not in capsys.readouterr().err
    assert len(pasted()) >= 8


def fill(servers: str) -> None:
    """Orders of which one is bad, and people."""
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        for topic in ("orders", "people"):
            admin.create_topic(topic)
        for number in range(3):
            producer.send("orders", json.dumps({"id": number, "price": number - 0.5}).encode())
            producer.send("people", json.dumps({"c": "Kenya"}).encode())
