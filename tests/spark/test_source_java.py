"""Java for Spark: the one there is, or the packaged one; and nothing said that nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.spark import daemon
from millstream.spark.runtime import java, session, shipping


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_java(home: Path) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text('#!/bin/sh\nfor each in "$@"; do echo "[$each]"; done\n')
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("cache")
def test_a_java_that_is_there_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "jdk")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "jdk" / "bin"))
    java.ensure_java()
    assert "JAVA_HOME" not in os.environ


@pytest.mark.usefixtures("cache")
def test_the_packaged_java_stands_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = os.environ["PATH"]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    java.ensure_java()
    wrapper = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    command = [str(wrapper), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": path})
    assert "openjdk version" in done.stderr and "incubator" not in done.stderr


def test_the_wrapper_drops_one_argument_and_keeps_the_others(cache: Path, tmp_path: Path) -> None:
    home = java._home_of(fake_java(tmp_path / "it's a jdk"))
    assert home.is_relative_to(cache)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME", "*"]
    done = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[a b]", "[]", "[$HOME]", "[*]"]


def test_without_a_home_a_temporary_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    place = java._kept_directory()
    assert place.is_dir()
    place.rmdir()


def test_workers_are_forked_with_the_decoder_loaded() -> None:
    code = (
        "from millstream.spark import daemon; daemon.preload()\n"
        "from millstream.consumer.decoding.decoder import decoder\n"
        "import gc, threading, sys\n"
        "assert decoder.kernels is not None\n"
        "assert threading.active_count() == 1, 'a thread would be missing after the fork'\n"
        "assert 'millstream.spark.source.source' in sys.modules\n"
        "assert gc.get_freeze_count() > 10_000, 'a worker looks at all of it after each task'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    assert daemon.preload.__doc__


def test_options_for_java_are_not_mixed_with_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two collectors of garbage, and Java does not start."""
    given: list[str] = []
    monkeypatch.setattr(
        session, "_SessionOnDemand", lambda master, settings: given.append(settings[session._JAVA_OPTIONS])
    )
    session.load_session(queries=False)
    session.load_session(queries=False, **{session._JAVA_OPTIONS: "-XX:+UseG1GC"})
    session.load_session("spark://other:7077", queries=False)
    assert ["SerialGC" in options for options in given] == [True, False, False]
    assert "UseG1GC" in given[1]


def test_the_package_can_be_imported_from_its_archive(tmp_path: Path) -> None:
    archive = shipping.package_archive(tmp_path)
    again = shipping.package_archive(tmp_path / "..")
    assert archive.read_bytes() == again.read_bytes(), "the same files give the same archive"
    again.unlink()
    code = "import millstream.spark.source.source as s; assert '.zip' in s.__file__, s.__file__"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(archive)})


@pytest.mark.parametrize("version", ["3.5.6", "4.0.1", "4.1.0"])
def test_an_older_spark_is_named_at_first_use(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark

    import millstream.spark as ms
    from millstream.errors import MisuseError

    monkeypatch.setattr(pyspark, "__version__", version)
    monkeypatch.delitem(vars(ms), "register", raising=False)
    with pytest.raises(MisuseError, match=rf"needs Spark 4\.2 or newer, and this is Spark {version}:"):
        _ = ms.register


def test_public_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import millstream.spark as ms
    from millstream.errors import MissingExtraError

    assert set(ms.__all__) <= set(dir(ms))
    for name in ms.__all__:
        assert getattr(ms, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = ms.nothing
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(vars(ms), "register")
    with pytest.raises((MissingExtraError, ImportError)):
        _ = ms.register
