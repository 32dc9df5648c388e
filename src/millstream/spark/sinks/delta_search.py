"""Finding rows of a Delta table by where they came from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model import TopicPartition
from millstream.spark.sinks.base import label_column, positions_among
from millstream.spark.sinks.delta_table import ActiveFile, Snapshot


class Wanted(NamedTuple):
    """Rows of one partition that are not past ``offset``; only those with ``label``, if there is one."""

    where: TopicPartition
    offset: int
    label: str | None


def positions_of(snapshot: Snapshot) -> tuple[str, str, str]:
    """The columns that say which record a row came from."""
    return positions_among({column.name for column in snapshot.handle.schema().fields})


def last_position(snapshot: Snapshot, directory: Path, wanted: Wanted) -> int | None:
    """The greatest position of these rows."""
    names = positions_of(snapshot)
    best: int | None = None
    for file in sorted(snapshot.files(), key=lambda file: -_most(file, names[2])):
        if best is not None and _most(file, names[2]) <= best:
            break
        found = _last_in(file, directory, names, wanted)
        best = found if best is None or (found is not None and found > best) else best
    return best


def _most(file: ActiveFile, name: str) -> int:
    most = file.most.get(name)
    return (1 << 63) - 1 if most is None else int(most)


def _last_in(file: ActiveFile, directory: Path, names: tuple[str, str, str], wanted: Wanted) -> int | None:
    values = dict(zip(names, wanted.where, strict=False))
    for name, value in values.items():
        least, most = file.least.get(name), file.most.get(name)
        if least is not None and most is not None and not least <= value <= most:
            return None
    if wanted.label is not None:
        values[label_column(names)] = wanted.label
    first = file.least.get(names[2])
    if first is not None and first > wanted.offset:
        return None
    with pq.ParquetFile(file.where(directory)) as source:
        table = source.read([name for name in (*values, names[2]) if name in source.schema_arrow.names])
    if wanted.label is not None and label_column(names) not in table.schema.names:
        return None  # older than the column
    mask = pc.less_equal(table[names[2]], wanted.offset)
    for name, value in values.items():
        if name in table.schema.names:  # a column that the table is partitioned by is in no file
            mask = pc.and_(mask, pc.equal(table[name], pa.scalar(value)))
    found: int | None = pc.max(table.filter(mask)[names[2]]).as_py()
    return found
