"""Reads transactions and restores from the log files of a Delta table.

delta-rs reads the version of one application at a time, and replays the log each time: a millisecond each. A
load needs several per partition in every cycle, so all of them are read at once here, and later only what was
committed since. Two simple actions are read: ``txn``, whose latest version counts, and ``commitInfo``, which
shows that a commit was a RESTORE.

RESTORE brings back the files of an older version but leaves the transactions as they are (in delta-rs and
Spark): progress would claim rows that are gone. So after a restore, progress is that of the older version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq

from millstream.spark.sinks.base import SinkError
from millstream.spark.sinks.delta.parquet.files import DataFile
from millstream.spark.sinks.delta.places.place import Place, readable

LOG: Final = "_delta_log"
_ATTEMPTS: Final = 5
_CLOCKS_SECONDS: Final = 3_600.0
"""How far the clocks of machines that share a place may differ."""
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(\.\d{10}\.\d{10})?\.parquet")


@dataclass(frozen=True, slots=True)
class Restore:
    """A commit that restored an older version."""

    version: int
    parameters: Mapping[str, Any]
    """Which version it restored: by ``version``, or by time."""


def commit_path(directory: Place, version: int) -> Place:
    """The file that holds one commit."""
    return directory / LOG / f"{version:020d}.json"


def read_commit(directory: Place, version: int) -> list[dict[str, Any]] | None:
    """The actions of one commit; None where there is no such commit, or it was cleaned up."""
    try:
        text = commit_path(directory, version).read_text()
    except FileNotFoundError:
        return None
    return [json.loads(line) for line in text.splitlines() if line]


def newest_version(directory: Place) -> int:
    """The greatest version of a commit or checkpoint in the log; -1 without any."""
    found = [
        int(match[1])
        for path in (directory / LOG).iterdir()
        if (match := _COMMIT.fullmatch(path.name) or _CHECKPOINT.fullmatch(path.name))
    ]
    return max(found, default=-1)


@dataclass(slots=True)
class LogView:
    """The transactions of a table up to ``version``, kept up to date by ``refresh``."""

    directory: Place
    version: int = -1
    table_id: str = ""
    transactions: dict[str, int] = field(default_factory=dict)
    _restores: list[Restore] = field(default_factory=list)
    _searched_from: int = 0
    """Restores at or past this version are known."""

    def refresh(self, table_id: str, version: int) -> None:
        """Read on to this version of the table, of which the caller has a snapshot."""
        if table_id != self.table_id or version < self.version:
            self._start_over(table_id)
        if self.version < 0:
            self._from_checkpoint(version)
        if not self._read_on(version):  # cleaned up meanwhile: a checkpoint has it
            self._start_over(table_id)
            self._from_checkpoint(version)
            if not self._read_on(version):
                raise SinkError(
                    f"the log of the Delta table {self.directory} has neither commit {self.version + 1} nor "
                    "a checkpoint after it, so the load's progress cannot be read"
                )

    def _read_on(self, version: int) -> bool:
        """Apply the commits up to ``version``; False where one is not there."""
        while self.version < version:
            actions = read_commit(self.directory, self.version + 1)
            if actions is None:
                return False
            self._apply(self.version + 1, actions)
        return True

    def restored_since(self, version: int, before: int) -> Restore | None:
        """The last restore after ``version`` and not after ``before``."""
        self._search(version + 1)
        found = [restore for restore in self._restores if version < restore.version <= before]
        return max(found, key=lambda restore: restore.version, default=None)

    @property
    def last_restore(self) -> int:
        """The version of the last restore that is known; -1 without any."""
        return max((restore.version for restore in self._restores), default=-1)

    def _start_over(self, table_id: str) -> None:
        self.version, self.table_id, self._searched_from = -1, table_id, 0
        self.transactions.clear()
        self._restores.clear()

    def _apply(self, version: int, actions: list[dict[str, Any]]) -> None:
        for action in actions:
            if "txn" in action:
                self.transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
            elif "commitInfo" in action:
                self._note(version, action["commitInfo"])
        self.version = version

    def _note(self, version: int, info: Mapping[str, Any]) -> None:
        if info.get("operation") == "RESTORE":
            self._restores.append(Restore(version, info.get("operationParameters") or {}))

    def _from_checkpoint(self, most: int) -> None:
        """Start from the last complete checkpoint that is not past ``most``, if there is one."""
        latest = max((v for v in self._checkpoints() if v <= most), default=None)
        if latest is None:
            return
        for path in self._checkpoints()[latest]:
            for row in _structs(path, "txn", ("appId", "version")):
                self.transactions[row["appId"]] = int(row["version"])
        self.version, self._searched_from = latest, latest + 1

    def _checkpoints(self) -> dict[int, list[Place]]:
        found: dict[int, list[Place]] = {}
        for path in (self.directory / LOG).iterdir():
            if match := _CHECKPOINT.fullmatch(path.name):
                found.setdefault(int(match[1]), []).append(path)
        return {version: paths for version, paths in found.items() if _complete(paths)}

    def _search(self, version: int) -> None:
        """Look for restores from ``version`` on, as far back as the log goes."""
        for earlier in range(self._searched_from - 1, version - 1, -1):
            path = commit_path(self.directory, earlier)
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            if b'"RESTORE"' in text:
                for line in text.splitlines():
                    self._note(earlier, json.loads(line).get("commitInfo") or {})
        self._searched_from = min(self._searched_from, version)


def named_files(directory: Place, since: float = 0.0) -> set[str]:
    """Every data file that a commit or checkpoint of the log names, removed files included.

    Log files from before ``since`` (Unix time in seconds) are not read: they cannot name newer data files.
    """
    for _ in range(_ATTEMPTS):
        # Before commits are cleaned up, a checkpoint is written that names their files: it may be newer than
        # our listing of the log.
        with suppress(FileNotFoundError):
            return _named(directory, since)
    return _named(directory, since)


def is_named(directory: Place, files: Sequence[DataFile]) -> bool:
    """Whether any version of the table names one of these files, including older versions."""
    if not (directory / LOG).is_dir():
        return False
    since = min(file.modified_ms for file in files) / 1000 - _CLOCKS_SECONDS
    return not named_files(directory, since).isdisjoint(file.path for file in files)


def _named(directory: Place, since: float) -> set[str]:
    named: set[str] = set()
    for path in (directory / LOG).iterdir():
        if since and path.stat().st_mtime < since:
            continue
        if _COMMIT.fullmatch(path.name):
            for line in path.read_text().splitlines():
                action = json.loads(line) if line else {}
                named.update(unquote(action[kind]["path"]) for kind in ("add", "remove") if kind in action)
        elif _CHECKPOINT.fullmatch(path.name):
            for kind in ("add", "remove"):
                named.update(unquote(row["path"]) for row in _structs(path, kind, ("path",)))
    return named


def _complete(paths: list[Place]) -> bool:
    """Whether a checkpoint has all its parts: their number is in each file's name."""
    parts = paths[0].name.split(".")
    return len(parts) == 3 or len(paths) == int(parts[3])


def _structs(path: Place, column: str, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The actions of one kind in a checkpoint, with some of their fields."""
    wanted = [f"{column}.{name}" for name in fields]
    with pq.ParquetFile(readable(path)) as file:
        if column not in file.schema_arrow.names:
            return
        for batch in file.iter_batches(columns=wanted):
            yield from (
                row for row in batch.column(column).drop_null().to_pylist() if row[fields[0]] is not None
            )
