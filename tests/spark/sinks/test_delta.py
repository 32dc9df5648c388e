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
    """A directory or an object store; read with delta-rs, as any user would."""

    def __init__(
        self, directory: str, monkeypatch: pytest.MonkeyPatch, options: dict[str, str] | None = None
    ) -> None:
        self.path = f"{directory}/orders"
        self._monkeypatch = monkeypatch
        self._options = options

    def sink(self) -> Sink:
        return DeltaSink(self.path, storage_options=self._options)

    def rows(self) -> list[dict[str, Any]]:
        return _read(self.path, self._options)

    def rejected(self) -> list[dict[str, Any]]:
        return _read(f"{self.path}_rejected", self._options)

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


def _read(path: str, options: dict[str, str] | None) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(path, options):
        return []
    rows: list[dict[str, Any]] = pa.table(DeltaTable(path, storage_options=options).scan()).to_pylist()
    return rows


class TestDelta(SinkConformance):
    @pytest.fixture
    def site(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaSite:
        return DeltaSite(str(tmp_path / "lake"), monkeypatch)
