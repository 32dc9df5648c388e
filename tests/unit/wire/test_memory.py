"""Memory of large pieces: used again when nobody looks, never while somebody does, and kept within bounds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from millstream.wire.memory import RecycledMemory

MEBIBYTE = 1 << 20


def address(view: memoryview) -> int:
    place: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return place


def test_memory_that_nobody_looks_at_is_used_again() -> None:
    memory = RecycledMemory()
    places = {address(memory.take(MEBIBYTE - 100 * number)) for number in range(50)}
    assert len(places) == 1


@pytest.mark.parametrize("keep", [lambda view: view[5:10], lambda view: np.frombuffer(view, np.uint8)[3:]])
def test_a_frame_that_somebody_looks_at_stays_as_it_is(keep: object) -> None:
    """Also through a slice or an array, as records have them."""
    memory = RecycledMemory()
    frame = memory.take(MEBIBYTE)
    frame[:] = b"x" * MEBIBYTE
    kept = keep(frame)  # type: ignore[operator]
    del frame
    for _ in range(3):
        memory.take(MEBIBYTE)[:] = b"y" * MEBIBYTE
    assert set(bytes(kept)) == {ord("x")}


def test_frames_in_turns_share_two_pieces_of_memory() -> None:
    """One is read while the next is received: that is how a consumer works."""
    memory = RecycledMemory()
    places = set()
    previous = memory.take(MEBIBYTE)
    for _ in range(20):
        current = memory.take(MEBIBYTE)
        places |= {address(previous), address(current)}
        previous = current
    assert len(places) == 2


def test_what_is_kept_is_bounded() -> None:
    memory = RecycledMemory()
    alive = [memory.take(size) for size in (MEBIBYTE, 3 * MEBIBYTE, 9 * MEBIBYTE) for _ in range(8)]
    assert 0 < memory.kept_bytes <= 16 * MEBIBYTE
    assert len({address(view) for view in alive}) == len(alive)
    many = [memory.take(70_000) for _ in range(100)]
    assert len(memory._kept) <= 16 < len(many)


def test_a_very_large_frame_is_not_kept() -> None:
    memory = RecycledMemory()
    memory.take(40 * MEBIBYTE)
    assert memory.kept_bytes == 0


def test_a_small_frame_does_not_hold_the_memory_of_a_large_one() -> None:
    memory = RecycledMemory()
    memory.take(8 * MEBIBYTE)
    small = memory.take(MEBIBYTE)
    assert len(small.obj) <= 2 * MEBIBYTE  # type: ignore[arg-type]


def test_threads_that_share_memory_never_get_the_same_piece() -> None:
    memory = RecycledMemory()

    def fill(mark: int) -> bool:
        for _ in range(300):
            view = memory.take(70_000)
            view[:64] = bytes([mark]) * 64
            memory.take(70_000)[:64] = b"?" * 64
            if bytes(view[:64]) != bytes([mark]) * 64:
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(fill, range(1, 5)))
    assert memory.kept_bytes <= 16 * MEBIBYTE
