"""Where files are kept that can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.cache import user_cache
from millstream.wire.records.jit import lasting


def test_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache() == tmp_path / ".cache" / "millstream"
    assert user_cache().is_dir()


def test_another_place_for_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == tmp_path / "millstream"
    place = Path(lasting("/not/there.py", "def f(): pass"))
    assert (place.parent, place.read_text()) == (user_cache(), "def f(): pass")


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_no_home_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(OSError, match="no home"):
        user_cache()
    assert lasting("/not/there.py", "def f(): pass") == "/not/there.py", "compiled each time"


def test_a_place_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    with pytest.raises(NotADirectoryError):
        user_cache()
    assert lasting("/not/there.py", "def f(): pass") == "/not/there.py"
