"""What is in the demo's Delta tables, asked in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def query(table: Path, sql: str) -> list[dict[str, Any]]:
    """The rows that a query over ``rows`` gives; none where there is no table yet."""
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
    """Where the rows are that were not good enough for a table."""
    return table.with_name(table.name + "_rejected")


def look_at(table: Path) -> list[str]:
    """Three commands to look at a table."""
    open_it = f"from deltalake import DeltaTable, QueryBuilder; t = DeltaTable('{table}')"
    sql = "SELECT country, count(*), sum(price) FROM rows GROUP BY country"
    return [
        f"millstream load rejected --to delta:{table}",
        f"python -c \"{open_it}; print(QueryBuilder().register('rows', t).execute('{sql}').read_all())\"",
        f'python -c "{open_it}; print(*t.history(), sep=chr(10))"',
    ]
