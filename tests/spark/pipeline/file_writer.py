"""The smallest sink there is: each task writes Arrow files into a directory, and the driver reads them."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.spark.sinks.base import TaskOutput, Written


@dataclass(frozen=True)
class FileWriter:
    """Pickled into each task."""

    directory: str

    def open(self) -> TaskOutput:
        return FileOutput(Path(self.directory))


class FileOutput:
    """Two lists of batches that become two files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rows: list[pa.RecordBatch] = []
        self._rejected: list[pa.RecordBatch] = []

    def write_rows(self, batch: pa.RecordBatch) -> None:
        self._rows.append(batch)

    def write_rejected(self, batch: pa.RecordBatch) -> None:
        self._rejected.append(batch)

    def finish(self) -> Written:
        rows, rejected = self._file(self._rows), self._file(self._rejected)
        count = [sum(batch.num_rows for batch in batches) for batches in (self._rows, self._rejected)]
        return Written(count[0], count[1], 0, 0, pickle.dumps((rows, rejected)))

    def abort(self) -> None:
        (self._directory / "aborted").touch()

    def _file(self, batches: list[pa.RecordBatch]) -> str | None:
        if not batches:
            return None
        path = str(self._directory / f"{uuid.uuid4().hex}.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return path


@dataclass(frozen=True)
class Found:
    """What tasks wrote; None where nothing was."""

    rows: pa.Table | None
    rejected: pa.Table | None


def read(written: Iterable[Written]) -> Found:
    """All rows and rejected rows of these tasks, in their order."""
    paths = [pickle.loads(one.payload) for one in written]
    return Found(_tables([rows for rows, _ in paths]), _tables([rejected for _, rejected in paths]))


def _tables(paths: Iterable[str | None]) -> pa.Table | None:
    tables = [_table(path) for path in paths if path is not None]
    return pa.concat_tables(tables) if tables else None


def _table(path: str) -> pa.Table:
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all()
