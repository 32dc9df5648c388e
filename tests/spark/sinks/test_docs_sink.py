"""The sink that docs/sinks.md shows, through the suite that every sink passes."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millstream.spark.sinks.base import Sink
from tests.spark.sinks.conformance import SinkConformance, Site

PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"


@pytest.fixture(scope="module")
def shown() -> Iterator[ModuleType]:
    """The page's Python as a module, which pickle can find."""
    (text,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    module = ModuleType("sink_of_the_docs")
    sys.modules[module.__name__] = module
    exec(compile(text, str(PAGE), "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


class SqliteSite:
    def __init__(self, module: Any, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._module = module
        self._path = directory / "orders.db"
        self._monkeypatch = monkeypatch

    def sink(self) -> Sink:
        sink: Sink = self._module.SqliteSink(self._path)
        return sink

    def rows(self) -> list[dict[str, Any]]:
        return self._read("rows")

    def rejected(self) -> list[dict[str, Any]]:
        return self._read("rejected")

    def _read(self, table: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self._path)) as db:
            db.row_factory = sqlite3.Row
            return [_typed(dict(row)) for row in db.execute(f"SELECT * FROM {table}")]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        def end(db: sqlite3.Connection) -> None:
            db.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

        with self._ending(end):
            yield

    @contextmanager
    def answer_lost(self) -> Iterator[None]:
        def end(db: sqlite3.Connection) -> None:
            db.execute("COMMIT")
            raise sqlite3.OperationalError("disk I/O error")

        with self._ending(end):
            yield

    @contextmanager
    def swallowing(self) -> Iterator[None]:
        with self._ending(lambda db: db.execute("ROLLBACK")):
            yield

    @contextmanager
    def _ending(self, end: Any) -> Iterator[None]:
        """Another end, for transactions that write: others just look."""
        ordinary = self._module.SqliteSink.end

        def chosen(db: sqlite3.Connection) -> None:
            (end if db.total_changes else ordinary)(db)

        with self._monkeypatch.context() as patch:
            patch.setattr(self._module.SqliteSink, "end", staticmethod(chosen))
            yield


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    moments = ("timestamp", "_timestamp", "rejected_at")
    return row | {name: datetime.fromisoformat(row[name]) for name in moments if row.get(name)}


class TestSinkOfTheDocs(SinkConformance):
    keeps_types = False  # SQLite has four

    @pytest.fixture
    def site(self, shown: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
        return SqliteSite(shown, tmp_path, monkeypatch)
