"""The Delta sink through the suite that every sink passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millstream.spark.sinks.base import Sink
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.conformance import SinkConformance


class DeltaSite:
    """A directory; read with delta-rs, as any user would."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = directory / "lake" / "orders"
        self._monkeypatch = monkeypatch

    def sink(self) -> Sink:
        return DeltaSink(self.path)

    def rows(self) -> list[dict[str, Any]]:
        return _read(self.path)

    def rejected(self) -> list[dict[str, Any]]:
        return _read(self.path.with_name("orders_rejected"))

    @contextmanager
    def _instead(self, *, done: bool, fails: bool) -> Iterator[None]:
        """Commits of the rows, with another outcome or another answer."""
        commit = DeltaTable.create_write_transaction

        def broken(handle: DeltaTable, *args: Any, **more: Any) -> None:
            if not handle.table_uri.rstrip("/").endswith("orders"):
                commit(handle, *args, **more)
                return
            if done:
                commit(handle, *args, **more)
            if fails:
                raise OSError("the disk went away")

        with self._monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", broken)
            yield

    @contextmanager
    def refusing(self) -> Iterator[None]:
        with self._instead(done=False, fails=True):
            yield

    @contextmanager
    def answer_lost(self) -> Iterator[None]:
        with self._instead(done=True, fails=True):
            yield

    @contextmanager
    def swallowing(self) -> Iterator[None]:
        with self._instead(done=False, fails=False):
            yield


def _read(path: Path) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(str(path)):
        return []
    rows: list[dict[str, Any]] = pa.table(DeltaTable(str(path)).scan()).to_pylist()
    return rows


class TestDelta(SinkConformance):
    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaSite:
        return DeltaSite(tmp_path, monkeypatch)
