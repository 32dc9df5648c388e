"""Many drivers on one Delta table at the same time, and drivers that are killed at any moment."""

from __future__ import annotations

import multiprocessing
import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millstream.spark.sinks.base import ProgressConflictError
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.driving import Driver, nowhere, offsets, step
from tests.waiting import SECONDS, until


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(path)).scan()).to_pylist()
    return found


class Together:
    """Calls that run at the same time, each in a thread; what they raised."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def start(self, call: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._guarded, args=(call,))
        thread.start()
        return thread

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)


def drive(sink: DeltaSink, partition: int) -> None:
    """Load 0 to 32 in small steps; partition 2 goes back a little after each."""
    driver = Driver(sink).prepared()
    for start in range(0, 32, 4):
        driver.load(step(partition, start, start + 4, bad={start}))
        if partition == 2 and start:
            driver.load(step(partition, start - 3, start + 4, bad={start}))


def test_drivers_and_a_compaction_at_the_same_time(tmp_path: Path) -> None:
    """Three partitions, a driver each; a fourth thread joins files all the while, with the first's sink."""
    path = tmp_path / "orders"
    shared = DeltaSink(path)
    Driver(shared).prepared()
    done = threading.Event()

    def compact() -> None:
        while not done.is_set():
            shared.compact(1 << 20, nowhere)

    together = Together()
    sinks = (shared, DeltaSink(path), DeltaSink(path))
    drivers = [together.start(partial(drive, sink, partition)) for partition, sink in enumerate(sinks)]
    compaction = together.start(compact)
    for thread in drivers:
        thread.join(5 * SECONDS)
    done.set()
    compaction.join(SECONDS)
    assert together.errors == []
    assert not any(thread.is_alive() for thread in (*drivers, compaction))
    for partition in range(3):
        assert offsets(rows(path), partition) == [o for o in range(32) if o % 4]
        assert offsets(rows(tmp_path / "orders_rejected"), partition) == list(range(0, 32, 4))


def test_another_commit_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the commit: delta-rs must not settle it by itself, but let us look again."""
    path = tmp_path / "orders"
    driver, other = Driver(DeltaSink(path)).prepared(), Driver(DeltaSink(path)).prepared()
    commit = DeltaTable.create_write_transaction
    done: list[bool] = []

    def late(handle: DeltaTable, *args: Any, **more: Any) -> None:
        if handle.table_uri.rstrip("/").endswith("orders") and not done:
            done.append(True)
            other.load(step(1, 0, 5))
        commit(handle, *args, **more)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    driver.load(step(0, 0, 5))
    table = DeltaTable(str(path))
    assert table.transaction_version("millstream/lake/orders/0/at") == table.version() == 2
    assert offsets(rows(path), 0) == offsets(rows(path), 1) == list(range(5))


def keep_loading(path: Path, end: int) -> None:
    """A driver that goes on from where the tables stand, to the end; it compacts now and then."""
    driver = Driver(DeltaSink(path)).prepared()
    while (start := driver.next_offset() or 0) < end:
        standing = driver.standing()
        least = standing.rejected.next_offset if standing.rejected is not None else 0
        stop = max(min(start + 3, end), least)
        try:
            driver.load(step(0, start, stop, bad=[o for o in range(start, stop) if o % 5 == 0]))
        except ProgressConflictError:
            continue
        if start % 4 == 0:
            driver.sink.compact(1 << 20, nowhere)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """1: SIGKILL, again and again, wherever the driver is; then one that is left alone."""
    path = tmp_path / "orders"
    Driver(DeltaSink(path)).prepared()
    # delta-rs has threads, which do not survive a fork
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.spark.sinks.test_delta_together"])
    for seed in range(8):
        chance = random.Random(seed)
        child = context.Process(target=keep_loading, args=(path, sys.maxsize), daemon=True)
        child.start()
        wait_for_commits(path, chance.randrange(1, 5))
        child.join(chance.uniform(0.0, 0.05))
        child.kill()
        child.join(SECONDS)
    end = (Driver(DeltaSink(path)).next_offset() or 0) + 30
    keep_loading(path, end)
    assert offsets(rows(path)) == [o for o in range(end) if o % 5]
    assert offsets(rows(tmp_path / "orders_rejected")) == list(range(0, end, 5))


def wait_for_commits(path: Path, more: int) -> None:
    """Until so many more commits are in the log than now."""
    log = path / "_delta_log"
    wanted = len(list(log.glob("*.json"))) + more
    until(lambda: len(list(log.glob("*.json"))) >= wanted, f"{more} more commits", 2 * SECONDS)
