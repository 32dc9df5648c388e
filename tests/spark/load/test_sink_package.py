"""The sink of docs/sinks.md as an installed package: the command line finds it by its entry point."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from millstream.producer import Producer
from millstream.spark.sinks.kinds import ENTRY_POINTS, OWN, SinkKind, kind_of
from tests.conftest import NewTopic
from tests.waiting import SECONDS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sinks.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def install(site: Path, name: str, entry_points: Mapping[str, str], module: str = "") -> None:
    """Put a package where pip would put it: a module, and the metadata that names its entry points."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text(module)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{scheme} = {value}\n" for scheme, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{lines}")


class Typed:
    """The command line in processes of their own, which see the packages of one directory."""

    def __init__(self, site: Path) -> None:
        self.site = site

    def __call__(self, *words: str, code: int = 0, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "millstream", *words],
            env={
                **os.environ,
                "PYTHONPATH": str(self.site),
                "SPARK_LOCAL_DIRS": str(self.site.parent),
                **environment,
            },
            cwd=self.site.parent,
            capture_output=True,
            text=True,
            timeout=6 * SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    def offered(self, line: str) -> list[str]:
        """What a shell offers where ``line`` ends."""
        place = str(len(line.split(" ")) - 1)
        return self(COMP_WORDS=line, COMP_CWORD=place, _MILLSTREAM_COMPLETE="complete_bash").split()


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    site = tmp_path / "site"
    declared = tomllib.loads(block("toml"))["project"]["entry-points"][ENTRY_POINTS]
    install(site, "millstream_sqlite", declared, block("python"))
    return Typed(site)


def test_a_sink_of_another_package(
    typed: Typed, bootstrap_servers: str, group: str, new_topic: NewTopic, producer: Producer, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    for number in range(10):
        value = b"what?" if number == 7 else json.dumps({"id": number}).encode()
        producer.send(topic, value, partition=number % 2)
    producer.flush()
    to = ("--to", "sqlite:orders.db", "-b", bootstrap_servers)
    assert "there is no file" in typed("load", "rejected", *to, code=1)

    out = typed("load", topic, "--group", group, *to, "--schema", "id LONG", "--once")
    assert "9 rows loaded into sqlite:orders.db, 1 rejected; 1 cycle" in out and "file" not in out
    with closing(sqlite3.connect(tmp_path / "orders.db")) as db:
        assert db.execute("SELECT id FROM rows ORDER BY id").fetchall() == [(n,) for n in range(10) if n != 7]

    status = json.loads(typed("load", "status", topic, "--group", group, *to, "--json"))
    assert (status["sink"], status["lag"]) == ("sqlite:orders.db", 0)
    (row,) = json.loads(typed("load", "rejected", *to, "--json"))
    assert row["value"] == "what?"


def test_it_is_offered_and_named(typed: Typed) -> None:
    assert typed.offered("millstream load orders --to ") == ["delta:", "postgresql://", "topic:", "sqlite:"]
    assert typed.offered("millstream load orders --to s") == ["sqlite:"]
    assert typed.offered("millstream console --table s") == ["sqlite:"]
    load = ("load", "status", "orders", "--group", "g", "-b", "127.0.0.1:1")
    said = typed(*load, "--to", "csv:orders", code=2)
    assert "'csv:orders' is not a known sink: use delta:DIR, " in said and "or sqlite:…" in said
    assert "did you mean sqlite:?" in typed(*load, "--to", "sqllite:orders.db", code=2)


@pytest.mark.parametrize(
    ("value", "module", "complaint"),
    [
        ("broken:KIND", "import nowhere_at_all", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("broken:KIND", "", "cannot be loaded: AttributeError: module 'broken' has no attribute 'KIND'"),
        ("broken:KIND", "KIND = 'sqlite'", "is not a SinkKind but a str"),
    ],
)
def test_a_broken_entry_point_is_one_sentence(typed: Typed, value: str, module: str, complaint: str) -> None:
    install(typed.site, "broken", {"broken": value}, module)
    said = typed("load", "rejected", "--to", "broken:x", code=2)
    assert f"the sink broken: of the package broken ({value}) {complaint}" in " ".join(said.split())
    assert "Traceback" not in said


@pytest.mark.parametrize("scheme", OWN)
def test_our_own_kinds_are_declared_like_any_other(scheme: str) -> None:
    assert isinstance(kind_of(f"{scheme}:orders"), SinkKind)
