"""The documentation is true: its Python runs, its pictures and tables are what the code draws, its links lead
somewhere.

Each piece of Python runs as a program of its own, against a broker with the topic customerCountries. A piece
that begins in the middle finds what the page says it has: the names of millstream, a consumer that is a
member of a group, ``process``. A piece that would go on for ever is ended as a user would: with Ctrl-C.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from millstream import Admin, EmbeddedBroker, Producer
from tests.programs import run_program
from tests.system.registry_server import registry_server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SECONDS = 250.0

NAMES = """\
from millstream import *
from millstream.errors import *

def process(record):
    assert record.value is not None
"""
A_CONSUMER = """\
import uuid
consumer = Consumer(bootstrap_servers="localhost:9092", group_id=uuid.uuid4().hex, enable_auto_commit=False,
                    auto_offset_reset="earliest", key_deserializer="string", value_deserializer="string")
consumer.subscribe(["customerCountries"])
while not consumer.assignment():
    consumer.poll(timeout=0.1, max_records=1)
"""
CTRL_C = """\
import _thread, threading
ctrl_c = threading.Timer(1.5, _thread.interrupt_main)
ctrl_c.daemon = True
ctrl_c.start()
"""


class Piece(NamedTuple):
    """One block of Python in a page."""

    page: str
    line: int
    text: str

    @property
    def is_a_test(self) -> bool:
        return "def test_" in self.text

    @property
    def needs_a_consumer(self) -> bool:
        return bool(re.search(r"\bconsumer\.|in consumer:", self.text)) and "as consumer:" not in self.text

    @property
    def goes_on(self) -> bool:
        return "while True:" in self.text or "for record in consumer:" in self.text

    def program(self, servers: str, registry: str) -> str:
        if self.is_a_test:
            return self.text
        parts = [NAMES, self.text]
        if self.needs_a_consumer:
            parts = [NAMES, A_CONSUMER, self.text, "consumer.close()\n"]
        if self.goes_on:
            parts.insert(-2 if self.needs_a_consumer else -1, CTRL_C)
        program = "".join(parts).replace("localhost:9092", servers)
        return program.replace("http://localhost:8081", registry)


def blocks(page: Path, language: str) -> Iterator[tuple[int, str]]:
    text = page.read_text()
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start()) + 2, match[1]


PIECES = [Piece(page.name, line, text) for page in PAGES for line, text in blocks(page, "python")]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with something to read, for this page only: its groups and topics are the readers'."""
    with EmbeddedBroker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("customerCountries", partitions=4)
        with Producer(
            bootstrap_servers=broker.bootstrap_servers, key_serializer="string", value_serializer="string"
        ) as producer:
            for number in range(1000):
                country = ("Brazil", "Kenya", "Norway")[number % 3]
                producer.send("customerCountries", country, key=f"customer-{number}")
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """A schema registry that has the schema of the page about them."""
    with registry_server() as server:
        server.register("customers-value", {"schema": '"string"'})
        yield server.url


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: f"{piece.page}:{piece.line}")
def test_python_runs(piece: Piece, servers: str, registry: str, tmp_path: Path) -> None:
    path = tmp_path / "test_piece.py"
    path.write_text(piece.program(servers, registry))
    command = [sys.executable, "-m", "pytest", "-q"] if piece.is_a_test else [sys.executable]
    done = run_program([*command, str(path)], cwd=tmp_path, timeout=SECONDS)
    interrupted = done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert done.returncode == 0 or interrupted, (done.stdout + done.stderr)[-3000:]
    assert piece.goes_on or not interrupted


def test_there_is_python_to_run() -> None:
    assert {piece.page for piece in PIECES} >= {"README.md", "consumer.md", "broker.md", "settings.md"}


def test_generated_parts_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--check"], check=False)
    assert done.returncode == 0


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", "docs", "-d", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "docs" / "consumer.html").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)", page.read_text()):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), f"{target}{anchor}"


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub links to them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
