"""The tables themselves: made when missing, checked when there, read, and kept in shape."""

from __future__ import annotations

import decimal
import math
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from millstream.spark.sinks.base import Position, SchemaConflictError, Sink, Tables
from tests.spark.sinks.driving import (
    NOON,
    REJECTED_SCHEMA,
    ROWS_SCHEMA,
    Driver,
    Step,
    nowhere,
    offsets,
    rows_batch,
    step,
)
from tests.spark.sinks.site import OnASite, Site, another

WIDER = pa.schema([*list(ROWS_SCHEMA)[:3], pa.field("country", pa.string()), *list(ROWS_SCHEMA)[3:]])


class WiderDriver(Driver):
    """Writes a column more."""

    def rows(self, step: Step, run: str) -> pa.RecordBatch:
        batch = rows_batch(step.topic, step.partition, step.good, run)
        country = pa.array(["Kenya"] * batch.num_rows)
        columns = [country if name == "country" else batch.column(name) for name in self.tables.rows.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.tables.rows)


class TableRules(OnASite):
    def test_preparing_twice_is_fine(self, site: Site, driver: Driver) -> None:
        driver.load(step(0, 0, 5))
        driver.prepared()
        another(site).load(step(0, 5, 10))
        assert offsets(site.rows()) == list(range(10))

    def test_the_name_is_what_a_user_types(self, driver: Driver) -> None:
        assert ":" in driver.sink.name

    def test_a_writer_opens_many_times(self, site: Site, driver: Driver) -> None:
        writer = driver.sink.writer("c")
        payloads = set()
        for _ in range(3):
            output = writer.open()
            output.write_rows(rows_batch("orders", 0, [1], "r"))
            payloads.add(output.finish().payload)
        assert len(payloads) == 3

    def test_rejected_rows_can_be_read(self, driver: Driver) -> None:
        driver.load(step(0, 0, 10, bad={1, 2, 3}), run="why")
        found = driver.sink.read_rejected()
        assert sorted(found["offset"].to_pylist()) == [1, 2, 3]
        assert set(found["reason"].to_pylist()) == {"why"}
        assert found.schema.names == REJECTED_SCHEMA.names
        assert driver.sink.read_rejected(2).num_rows == 2

    def test_rejected_rows_can_be_read_some_at_a_time(self, driver: Driver) -> None:
        """Those that were there at the start, also when others leave meanwhile."""
        read = getattr(driver.sink, "rejected_batches", None)
        if read is None:
            pytest.skip("this sink reads all of them at once")
        assert [batch.num_rows for batch in read()] == []
        driver.load(step(0, 0, 10, bad={1, 2, 3}), run="why")
        driver.load(step(1, 0, 10, bad={4}), run="why")
        found = read()
        first = next(found)
        places = first.select(["topic", "partition", "offset"]).to_pylist()
        leaving = [Position(**place) for place in places]
        driver.sink.readmit(leaving, [], nowhere)
        table = pa.Table.from_batches([first, *found])
        assert sorted(table["offset"].to_pylist()) == [1, 2, 3, 4]
        assert table.schema.names == REJECTED_SCHEMA.names
        assert driver.sink.read_rejected().num_rows == 4 - len(leaving)

    def test_no_rejected_rows(self, driver: Driver) -> None:
        assert driver.sink.read_rejected().num_rows == 0

    # -- columns

    def test_a_new_column_is_added_when_allowed(self, site: Site, driver: Driver) -> None:
        self._needs_columns()
        driver.load(step(0, 0, 2))
        wider = WiderDriver(site.sink(), Tables(WIDER, REJECTED_SCHEMA, add_columns=True)).prepared()
        wider.load(step(0, 2, 4))
        countries = {row["_offset"]: row["country"] for row in site.rows()}
        assert countries == {0: None, 1: None, 2: "Kenya", 3: "Kenya"}
        driver.prepared()  # a table with more columns than the load has is fine: they are null
        driver.load(step(0, 4, 5))
        assert offsets(site.rows()) == list(range(5))

    def test_a_new_column_is_refused_when_not_allowed(self, site: Site, driver: Driver) -> None:
        """20: refused before any work, so that nothing is skipped."""
        self._needs_columns()
        driver.load(step(0, 0, 2))
        with pytest.raises(SchemaConflictError, match=r"country.*add_columns"):
            WiderDriver(site.sink(), Tables(WIDER, REJECTED_SCHEMA)).prepared()
        assert driver.next_offset() == 2

    def test_another_type_is_refused(self, site: Site, driver: Driver) -> None:
        self._needs_columns()
        text = pa.schema([pa.field("id", pa.string()), *list(ROWS_SCHEMA)[1:]])
        with pytest.raises(SchemaConflictError, match="id"):
            site.sink().prepare("lake", Tables(text, REJECTED_SCHEMA, add_columns=True))

    def test_types_survive(self, site: Site) -> None:
        if not self.keeps_types:
            pytest.skip("this store has fewer types")
        rows = Typed.rows()
        driver = another(site, Tables(Typed.SCHEMA, REJECTED_SCHEMA))
        output = driver.sink.writer("typed").open()
        output.write_rows(pa.RecordBatch.from_pylist(rows, Typed.SCHEMA))
        written = output.finish()
        cycle = driver.plan(step(0, 0, 0))
        driver.sink.commit(_with(cycle, written), nowhere)
        found = sorted(site.rows(), key=lambda row: int(row["_offset"]))
        for wanted, got in zip(rows, found, strict=True):
            assert {name: Typed.plain(got[name]) for name in wanted} == wanted

    def _needs_columns(self) -> None:
        if not self.can_evolve:
            pytest.skip("this sink has no columns")

    # -- compaction

    def test_compaction_keeps_rows_and_progress(self, site: Site, driver: Driver) -> None:
        for start in range(0, 20, 2):
            driver.load(step(0, start, start + 2, bad={start}), step(1, start, start + 2))
        before = driver.standing()
        driver.sink.compact(1 << 20, nowhere)
        assert driver.standing() == before
        assert offsets(site.rows(), 0) == list(range(1, 20, 2))
        assert offsets(site.rows(), 1) == list(range(20))
        assert offsets(site.rejected()) == list(range(0, 20, 2))
        driver.load(step(0, 20, 22))
        assert offsets(site.rows(), 0) == [*range(1, 20, 2), 20, 21]

    def test_loading_goes_on_during_compaction(self, site: Site, driver: Driver) -> None:
        for start in range(0, 20, 2):
            driver.load(step(0, start, start + 2))
        loads: list[Any] = []

        def at(point: str) -> None:
            if point == "compacting" and not loads:
                loads.append(another(site).load(step(0, 20, 30)))

        driver.sink.compact(1 << 20, at)
        expected = 30 if loads else 20
        assert offsets(site.rows()) == list(range(expected))
        assert driver.next_offset() == expected

    def test_a_rewind_replaces_during_compaction(self, site: Site, driver: Driver) -> None:
        if not self.can_replace:
            pytest.skip("this sink only appends")
        for start in range(0, 20, 2):
            driver.load(step(0, start, start + 2), run="first")
        loads: list[Any] = []

        def at(point: str) -> None:
            if point == "compacting" and not loads:
                loads.append(another(site).load(step(0, 3, 9, gaps=frozenset({5})), run="again"))

        sink: Sink = driver.sink
        sink.compact(1 << 20, at)
        if not loads:
            another(site).load(step(0, 3, 9, gaps=frozenset({5})), run="again")
        assert offsets(site.rows()) == [o for o in range(20) if o != 5]
        another(site).load(step(0, 9, 20))
        assert offsets(site.rows()) == [o for o in range(20) if o != 5]


def _with(cycle: Any, written: Any) -> Any:
    from dataclasses import replace

    return replace(cycle, written=(written,))


class Typed:
    """A column of each type that a load writes, with its extremes, and with nulls."""

    SCHEMA = pa.schema(
        [
            ("boolean", pa.bool_()),
            ("small", pa.int16()),
            ("integer", pa.int32()),
            ("long", pa.int64()),
            ("real", pa.float32()),
            ("double", pa.float64()),
            ("money", pa.decimal128(20, 4)),
            ("text", pa.string()),
            ("bytes", pa.binary()),
            ("day", pa.date32()),
            ("moment", pa.timestamp("us", "UTC")),
            ("names", pa.list_(pa.field("element", pa.string()))),
            *list(ROWS_SCHEMA)[3:],
        ]
    )

    @staticmethod
    def rows() -> list[dict[str, Any]]:
        full: dict[str, Any] = {
            "boolean": True,
            "small": -(1 << 15),
            "integer": -(1 << 31),
            "long": (1 << 63) - 1,
        }
        full |= {"real": 0.5, "double": math.inf, "money": decimal.Decimal("-1234567.8900")}
        full |= {"text": 'quote " back\\slash \n tab\t é 漢 \U0001f600', "bytes": b"\x00\xff\\x"}
        full |= {"day": date(1969, 12, 31), "moment": NOON.replace(microsecond=123456)}
        full |= {"names": ["a", None, ""]}
        empty: dict[str, Any] = dict.fromkeys(full)
        rows: list[dict[str, Any]] = [full, empty, full | {"text": "", "bytes": b"", "names": []}]
        place = {"_topic": "orders", "_partition": 0, "_timestamp": NOON}
        return [row | place | {"_offset": number} for number, row in enumerate(rows)]

    @staticmethod
    def plain(value: Any) -> Any:
        return bytes(value) if isinstance(value, memoryview) else value
