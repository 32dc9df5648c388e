"""Finding rows of a Delta table by where they came from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model import TopicPartition
from millstream.spark.sinks.base import label_column, positions_among
from millstream.spark.sinks.delta.parquet.reading import columns_of, only, stored
from millstream.spark.sinks.delta.table import ActiveFile, Snapshot


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
    columns = only(columns_of(snapshot), (*names, label_column(names)))
    best: int | None = None
    for file in sorted(snapshot.files(), key=lambda file: -_most(file, names[2])):
        if best is not None and _most(file, names[2]) <= best:
            break
        if _may_hold(file, names, wanted):
            best = _greater(best, _last_in(stored(file, directory, columns), names, wanted))
    return best


def _greater(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _most(file: ActiveFile, name: str) -> int:
    most = file.most.get(name)
    return (1 << 63) - 1 if most is None else int(most)


def _may_hold(file: ActiveFile, names: tuple[str, str, str], wanted: Wanted) -> bool:
    for name, value in zip(names, wanted.where, strict=False):
        least, most = file.least.get(name), file.most.get(name)
        if least is not None and most is not None and not least <= value <= most:
            return False
    first = file.least.get(names[2])
    return first is None or first <= wanted.offset


def _last_in(batches: Iterable[pa.RecordBatch], names: tuple[str, str, str], wanted: Wanted) -> int | None:
    values: dict[str, object] = dict(zip(names, wanted.where, strict=False))
    label = label_column(names)
    if wanted.label is not None:
        values[label] = wanted.label
    best: int | None = None
    for batch in batches:
        if wanted.label is not None and label not in batch.schema.names:
            return None  # older than the column
        mask = pc.less_equal(batch.column(names[2]), wanted.offset)
        for name, value in values.items():
            if name in batch.schema.names:  # a column that the table is partitioned by is in no file
                mask = pc.and_(mask, pc.equal(batch.column(name), pa.scalar(value)))
        best = _greater(best, pc.max(batch.filter(mask).column(names[2])).as_py())
    return best
