"""What the README and the tutorial have people type works: one after the other, in one directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millstream import EmbeddedBroker
from tests.system.documented import steps, type_in

FIRST_CONSUMER = [
    "created topic customerCountries with 3 partitions",
    "1 record written to customerCountries",
    "Portugal",
]


def test_a_first_consumer(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        shown = type_in(steps("README.md")["A first consumer"], tmp_path, broker.bootstrap_servers)
    assert shown.splitlines() == FIRST_CONSUMER


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_readme_then_the_tutorial(tmp_path: Path) -> None:
    """A reader follows both, with the same broker in the same directory: names must not collide."""
    pytest.importorskip("pyspark")
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        follow_the_readme(tmp_path, servers)
        follow_the_tutorial(tmp_path, servers)


def follow_the_readme(directory: Path, servers: str) -> None:
    commands = steps("README.md")
    assert type_in(commands["A first consumer"], directory, servers).splitlines() == FIRST_CONSUMER
    shown = type_in(commands["A first load"], directory, servers)
    assert "1 row loaded into delta:lake/payments, 1 rejected" in shown
    assert "check failed: amount > 0" in shown
    assert re.search(r"^lag +0$", shown, re.MULTILINE)


def follow_the_tutorial(directory: Path, servers: str) -> None:
    commands, programs = steps("docs/tutorial.md"), steps("docs/tutorial.md", "py")
    assert type_in(commands["3. Create and fill a topic"], directory, servers).count('"price"') == 4
    loaded = type_in(commands["5. Load it into a table"], directory, servers)
    assert 'expected DOUBLE, got string "free"' in loaded
    assert "check failed: price > 0" in loaded
    looked = type_in(commands["6. Query the table"], directory, servers)
    assert "Brazil" in looked and "Kenya" in looked and "Norway" not in looked
    program = programs["7. The same from Python"].replace("localhost:9092", servers)
    (directory / "same.py").write_text(program)
    assert "0 0" in type_in("python same.py", directory, servers)
