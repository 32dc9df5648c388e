"""Compiled loops come when there is work for them, once, and nobody waits."""

from __future__ import annotations

import os
import threading

import pytest

from millstream.background_compile import BackgroundLoad
from millstream.wire.records.jit import Loops

SECONDS = 60.0


def test_they_are_loaded_when_there_is_volume() -> None:
    loops: Loops[str] = Loops(volume_bytes=100)
    go = threading.Event()
    loads: list[str] = []

    def load() -> str:
        loads.append(threading.current_thread().name)
        assert go.wait(SECONDS)
        return "kernels"

    background = BackgroundLoad(loops, load, "encoder")
    assert loops.ready(1000) is None and not loads, "nobody has asked for them"
    background.on_volume()
    loops.seen_bytes = 0
    assert loops.ready(60) is None and loops.ready() is None and not loads
    assert loops.ready(60) is None, "they are on their way, and the caller goes on without"
    assert loops.ready(60) is None
    go.set()
    assert background.wait(SECONDS) == "kernels"
    assert loops.ready(60) == "kernels"
    assert loads == ["millstream-compiling"]


def test_whoever_waits_need_not_have_volume() -> None:
    loops: Loops[str] = Loops(volume_bytes=100)
    assert BackgroundLoad(loops, lambda: "kernels", "encoder").wait(SECONDS) == "kernels"


def test_without_them_the_plain_code_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    loops: Loops[str] = Loops(volume_bytes=0)

    def load() -> str:
        raise ImportError("no numba here")

    background = BackgroundLoad(loops, load, "encoder")
    assert background.wait(SECONDS) is None
    assert "the compiled encoder cannot be loaded" in caplog.text
    assert loops.ready(1000) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_waits_until_they_are_loaded() -> None:
    """A child of a process in the middle of an import waits for ever for whoever was importing."""
    loops: Loops[str] = Loops(volume_bytes=0)
    begun, go = threading.Event(), threading.Event()

    def load() -> str:
        begun.set()
        assert go.wait(SECONDS)
        return "kernels"

    background = BackgroundLoad(loops, load, "encoder")
    background.begin()
    assert begun.wait(SECONDS)
    threading.Timer(0.1, go.set).start()
    child = os.fork()
    if child == 0:
        os._exit(0 if loops.kernels == "kernels" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert background.wait(SECONDS) == "kernels"
