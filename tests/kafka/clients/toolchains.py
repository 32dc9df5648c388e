"""What clients in other languages need: built once, into ``.cache``; what is missing is named, not hidden."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.kafka.not_run import not_run

HERE: Final = Path(__file__).parent
CACHE: Final = HERE.parents[2] / ".cache" / "kafka-clients"
_GO_ELSEWHERE: Final = Path("/usr/local/go/bin/go")
_BUILD_SECONDS: Final = 900.0


def franz() -> list[str]:
    """The command of the Go program, built if it was changed."""
    return _go("franz-go", "franz", "build", ".")


def franz_suite() -> list[str]:
    """The command of franz-go's own tests of its client, in the version that go.mod names."""
    return _go("franz-go's tests", "franz-suite", "test", "-c", "github.com/twmb/franz-go/pkg/kgo")


def _go(what: str, name: str, verb: str, *arguments: str) -> list[str]:
    """A program built from the module in ``franz``, again if that was changed."""
    go = shutil.which("go") or (str(_GO_ELSEWHERE) if _GO_ELSEWHERE.exists() else None)
    if go is None:
        not_run(what, "go is not on the PATH")
    binary = CACHE / name
    sources = [HERE / "franz" / each for each in ("main.go", "go.mod", "go.sum")]
    with _lock("franz"):
        if not binary.exists() or binary.stat().st_mtime < max(each.stat().st_mtime for each in sources):
            go_cache = CACHE.parent / "go"
            environment = {
                **os.environ,
                "GOFLAGS": "-modcacherw",
                "GOMODCACHE": str(go_cache / "mod"),
                "GOCACHE": str(go_cache / "build"),
                "GOTOOLCHAIN": "local",
            }
            _build(what, [go, verb, "-o", str(binary), *arguments], HERE / "franz", environment)
    return [str(binary)]


def pyright() -> list[str]:
    """The command of pyright, installed in the version that its package-lock.json names."""
    return ["node", str(_npm("pyright", HERE.parents[1] / "unit" / "typed") / "pyright" / "index.js")]


def kafkajs() -> list[str]:
    """The command of the JavaScript program; NODE_PATH must lead to ``node_modules``."""
    _npm("kafkajs", HERE / "kafkajs")
    return ["node", str(HERE / "kafkajs" / "main.js")]


def _npm(package: str, locked: Path) -> Path:
    """The directory ``node_modules`` with a package, as the package-lock.json in ``locked`` says."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            not_run(package, f"{tool} is not on the PATH")
    directory = CACHE / package
    with _lock(package):
        if not (directory / "node_modules" / package).is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(locked / name, directory / name)
            _build(package, ["npm", "ci", "--no-audit", "--no-fund"], directory, dict(os.environ))
    return directory / "node_modules"


def kcat() -> list[str]:
    if shutil.which("kcat") is None:
        not_run("kcat", "kcat is not on the PATH")
    return ["kcat"]


@contextmanager
def _lock(name: str) -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(what: str, command: list[str], directory: Path, environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        not_run(what, f"it could not be built within {_BUILD_SECONDS:.0f} seconds")
    if done.returncode:
        not_run(what, f"it could not be built: {done.stderr.strip().splitlines()[-1:]}")
