"""The commands of the documentation, typed as they stand in a directory of the test's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_SECONDS: Final = 200.0


def steps(page: str, language: str = "") -> dict[str, str]:
    """The commands, or the program, below each heading of a page. Brokers are left out: the test has one."""
    found: dict[str, str] = {}
    for section in (ROOT / page).read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        lines = "".join(re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
        found[title] = re.sub(r"^millstream broker.*\n", "", lines, flags=re.MULTILINE)
    return found


def type_in(commands: str, directory: Path, servers: str) -> str:
    """Run commands as a shell would, and return what they print; the first that fails fails the test."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=directory,
        env={**os.environ, "PATH": path, "MILLSTREAM_BOOTSTRAP_SERVERS": servers},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
