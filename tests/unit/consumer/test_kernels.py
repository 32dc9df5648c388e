"""When the compiled decoder is loaded, and that its loops leave the interpreter to others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from millstream.consumer import compiled_decoder as compiling
from millstream.consumer.decoding import decoder as kernels
from millstream.consumer.decoding.decoder import Decoder


def test_it_is_loaded_when_there_was_volume_and_not_while_the_first_records_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = Decoder()
    loads: list[int] = []
    decoder.load = lambda: loads.append(1)
    monkeypatch.setattr(kernels, "decoder", decoder)
    assert not decoder.begin()
    assert kernels.kernels(10_000_000) is None
    assert not loads, "the first records are decoded before anything is loaded"
    assert not decoder.begin()
    assert loads == [1]


def test_a_few_records_load_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder()
    decoder.load = pytest.fail
    monkeypatch.setattr(kernels, "decoder", decoder)
    for _ in range(10):
        assert not decoder.begin()
        assert kernels.kernels(10_000) is None


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """Threads give up the interpreter only when they want to."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(interval)


def test_python_goes_on_while_the_loops_work(no_forced_switches: None) -> None:
    """So receiving overlaps with decoding: the long loops do not hold the interpreter's lock."""
    loops = compiling.background.wait(60)
    assert loops is not None
    rows, times = 1 << 18, 60
    data = np.zeros(rows * 64, np.uint8)
    starts, sizes = np.arange(rows, dtype=np.int32) * 64, np.full(rows, 64, np.int32)
    ends, validity, out = np.zeros(rows, np.int32), np.zeros(rows // 8 + 1, np.uint8), np.empty_like(data)
    done: list[int] = []

    def work() -> None:
        for _ in range(times):
            loops.gather(data, starts, sizes, ends, validity, out, 0, 0)
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    seen = set()
    while len(done) < times:
        seen.add(len(done))
        thread.join(0.0005)  # with the lock held by the other, this would take until all is done
    assert len(seen) > 5
