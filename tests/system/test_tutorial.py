"""The tutorial, typed as it stands: what it promises happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import EmbeddedBroker

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
SECONDS = 200.0


def steps(language: str) -> dict[str, str]:
    """The commands, or the program, below each heading."""
    found: dict[str, str] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        found[title] = "".join(re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_works_as_written(tmp_path: Path) -> None:
    commands, programs = steps(""), steps("py")
    with EmbeddedBroker() as broker:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": path,
            "MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        }

        def type_in(command: str) -> str:
            done = subprocess.run(
                ["bash", "-e", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        shown = type_in(commands["3. Create and fill a topic"])
        assert shown.count('"price"') == 4
        loaded = type_in(commands["5. Load it into a table"])
        assert 'expected DOUBLE, got string "free"' in loaded
        assert "check failed: price > 0" in loaded
        looked = type_in(commands["6. Query the table"])
        assert "Brazil" in looked and "Kenya" in looked and "Norway" not in looked
        program = programs["7. The same from Python"].replace("localhost:9092", broker.bootstrap_servers)
        (tmp_path / "same.py").write_text(program)
        assert "0 0" in type_in("python same.py")
