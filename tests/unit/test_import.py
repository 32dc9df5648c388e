"""Importing millstream is cheap: what is heavy comes only when it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import millstream
from tests.waiting import soon_enough

PEERS = "import asyncio, unittest.mock, xml.dom.minidom, http.server"
"""About as many modules, of the standard library."""
LIMIT = 3.0
ATTEMPTS = 8
HEAVY = {"asyncio", "fastavro", "numba", "numpy", "pyarrow", "rich", "typer"}

STATEMENTS = ["import millstream", "from millstream import Producer, Admin"]


def run(code: str, bytecode: Path | None = None) -> str:
    variables = dict(os.environ)
    if bytecode is not None:
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        variables["PYTHONPYCACHEPREFIX"] = str(bytecode)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=variables
    )
    return done.stdout.strip()


def seconds_of(statement: str, bytecode: Path) -> float:
    """The processor's time: what else runs on the machine is not the package's doing."""
    code = f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    return float(run(code, bytecode))


@pytest.mark.parametrize("statement", STATEMENTS)
def test_import_is_quick(statement: str, tmp_path: Path) -> None:
    """Compared with other modules on the same machine, which may be a slow one."""
    for each in (statement, PEERS):  # installed packages come with bytecode: compiling is no part of it
        run(each, tmp_path)
    soon_enough(
        lambda: seconds_of(statement, tmp_path) / seconds_of(PEERS, tmp_path), LIMIT, statement, ATTEMPTS
    )


@pytest.mark.parametrize("statement", STATEMENTS)
def test_import_brings_nothing_heavy(statement: str) -> None:
    loaded = set(run(f"{statement}; import sys; print(*sys.modules)").split())
    assert not loaded & HEAVY


@pytest.mark.parametrize("name", [name for name in millstream.__all__ if name != "__version__"])
def test_public_names(name: str) -> None:
    assert getattr(millstream, name).__name__ == name
    assert name in dir(millstream)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        millstream.Nonsense  # noqa: B018
