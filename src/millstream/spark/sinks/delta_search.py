"""Finding rows of a Delta table by where they came from."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model import TopicPartition
from millstream.spark.sinks.delta_table import ActiveFile, Snapshot


def positions_of(snapshot: Snapshot) -> tuple[str, str, str]:
    """The columns that say which record a row came from."""
    names = {column.name for column in snapshot.handle.schema().fields}
    return ("_topic", "_partition", "_offset") if "_offset" in names else ("topic", "partition", "offset")


def last_position(snapshot: Snapshot, directory: Path, where: TopicPartition, offset: int) -> int | None:
    """The greatest position of a row of this partition that is not past ``offset``."""
    names = positions_of(snapshot)
    best: int | None = None
    for file in sorted(snapshot.files(), key=lambda file: -_most(file, names[2])):
        if best is not None and _most(file, names[2]) <= best:
            break
        found = _last_in(file, directory, names, where, offset)
        best = found if best is None or (found is not None and found > best) else best
    return best


def _most(file: ActiveFile, name: str) -> int:
    most = file.most.get(name)
    return (1 << 63) - 1 if most is None else int(most)


def _last_in(
    file: ActiveFile, directory: Path, names: tuple[str, str, str], where: TopicPartition, offset: int
) -> int | None:
    wanted = (where.topic, where.partition)
    bounds = [(file.least.get(name), file.most.get(name)) for name in names]
    for (least, most), value in zip(bounds, wanted, strict=False):
        if least is not None and most is not None and not least <= value <= most:
            return None
    if bounds[2][0] is not None and bounds[2][0] > offset:
        return None
    with pq.ParquetFile(file.where(directory)) as source:
        table = source.read([name for name in names if name in source.schema_arrow.names])
    mask = pc.less_equal(table[names[2]], offset) if names[2] in table.schema.names else pa.scalar(True)
    for name, value in zip(names, wanted, strict=False):
        if name in table.schema.names:
            mask = pc.and_(mask, pc.equal(table[name], value))
    found: int | None = pc.max(table.filter(mask)[names[2]]).as_py()
    return found
