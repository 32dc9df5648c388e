"""SQL queries over the demo's Delta tables."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any


def query(table: Path, sql: str) -> list[dict[str, Any]]:
    """The result of a query over ``rows``; empty without a table."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    if not DeltaTable.is_deltatable(str(table)):
        return []
    builder: Any = QueryBuilder().register("rows", DeltaTable(table))
    found: list[dict[str, Any]] = pa.table(builder.execute(sql).read_all()).to_pylist()
    return found


def count(table: Path) -> int:
    """How many rows there are."""
    return sum(row["n"] for row in query(table, "SELECT count(*) AS n FROM rows"))


def rejected_beside(table: Path) -> Path:
    """The table of rejected rows of a table."""
    return table.with_name(table.name + "_rejected")


def look_at(table: Path) -> list[str]:
    """Three commands that query a table."""
    opened = f"d.DeltaTable('{table}')"
    sql = "SELECT country, sum(price) FROM t GROUP BY country"
    ask = f"d.QueryBuilder().register('t', {opened}).execute('{sql}').read_all()"
    return [
        f"{_program('millstream')} load rejected --to delta:{table}",
        f'{_program("python")} -c "import deltalake as d; print({ask})"',
        f'{_program("python")} -c "import deltalake as d; print({opened}.history())"',
    ]


def _program(name: str) -> str:
    """A program of this environment: its name, or its path if the name finds another program."""
    here = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    if found is not None and Path(found) == here:
        return name
    return os.path.relpath(here) if here.is_relative_to(Path.cwd()) else str(here)
