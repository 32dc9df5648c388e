"""Repaired rows enter a Delta table while loads rewind over them: in which order its two tables change."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millstream.spark.sinks.base import Position, SinkError, Written
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.driving import TOPIC, Driver, Stopped, dies_at, nowhere, offsets, step

BAD = {2, 3}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def driver(path: Path) -> Driver:
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 10, bad=BAD), run="first")
    return driver


def held(path: Path) -> tuple[list[int], list[int]]:
    """The offsets in the rows, and in the rejected rows."""
    tables = (path, path.with_name("orders_rejected"))
    found = [offsets(pa.table(DeltaTable(str(table)).scan()).to_pylist()) for table in tables]
    return found[0], found[1]


def rewound(path: Path, at: Callable[[str], None]) -> None:
    """Another driver rejects the same records again."""
    other = Driver(DeltaSink(path)).prepared()
    other.now += timedelta(seconds=1)
    other.anchor(0, 0)
    with suppress(Stopped):
        other.sink.commit(other.plan(step(0, 0, 10, bad=BAD), run="again"), at)


def repaired(driver: Driver) -> Written:
    return driver.write(uuid.uuid4().hex, step(0, 2, 4), "repaired")


MOVED = [Position(TOPIC, 0, offset) for offset in sorted(BAD)]


def test_a_rewind_that_is_between_the_tables_itself(driver: Driver, path: Path) -> None:
    """Its commit of the rejected rows comes in between, that of the rows afterwards."""
    driver.sink.readmit(MOVED, [repaired(driver)], lambda _: rewound(path, dies_at("between tables")))
    assert held(path)[1] == [2, 3], "rejected again, and not to be taken away"
    later = Driver(DeltaSink(path)).prepared()
    later.load(step(0, 0, 10, bad=BAD), run="taken over")
    assert held(path) == ([o for o in range(10) if o not in BAD], [2, 3])


def test_records_that_a_rewind_has_half_replaced_wait_for_it(driver: Driver, path: Path) -> None:
    rewound(path, dies_at("between tables"))
    written = repaired(driver)
    with pytest.raises(SinkError, match=r"between its two commits in orders-0 \[0, 10\)"):
        driver.sink.readmit(MOVED, [written], nowhere)
    later = Driver(DeltaSink(path)).prepared()
    later.load(step(0, 0, 10, bad=BAD), run="taken over")
    driver.sink.readmit(MOVED, [written], nowhere)
    assert held(path) == (list(range(10)), [])


@pytest.mark.parametrize("fits", [True, False])
def test_a_rewind_just_before_the_rows_enter(
    driver: Driver, path: Path, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the rejected rows were looked at: the commit does not fit the table any more, and looks again.
    That also holds where no row comes of the records, so that there is nothing to commit.
    """
    written = repaired(driver) if fits else driver.write(uuid.uuid4().hex, step(0, 2, 2), "repaired")
    put: Any = DeltaSink._put
    done: list[bool] = []

    def late(sink: DeltaSink, *args: Any) -> bool:
        *most, settle = args

        def then(snapshot: object) -> None:
            settle(snapshot)
            if not done:
                done.append(True)
                rewound(path, nowhere)

        return bool(put(sink, *most, then) if len(args) == 4 else put(sink, *args))

    monkeypatch.setattr(DeltaSink, "_put", late)
    driver.sink.readmit(MOVED, [written], nowhere)
    good = list(range(10)) if fits else [o for o in range(10) if o not in BAD]
    assert done and held(path) == (good, [])


def test_files_that_are_joined_meanwhile(driver: Driver, path: Path) -> None:
    driver.load(step(0, 10, 20, bad={12}))

    def joins(_: str) -> None:
        assert Driver(DeltaSink(path)).prepared().sink.compact(1 << 20, nowhere)

    driver.sink.readmit(MOVED, [repaired(driver)], joins)
    assert held(path) == ([o for o in range(20) if o != 12], [12])
