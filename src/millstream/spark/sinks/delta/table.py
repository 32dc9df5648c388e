"""One Delta table: snapshots of it, and commits that apply to exactly the snapshot they were planned on.

On a conflict, delta-rs would check by itself whether two commits are compatible, and retry. Here it may not
(``max_commit_retries=0``): a commit becomes the version right after its snapshot, or fails and is planned
again. So nothing can come in between: no other driver, no compaction, no RESTORE.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from millstream.spark.sinks.base import Progress, SinkError
from millstream.spark.sinks.delta import progress as delta_progress
from millstream.spark.sinks.delta.errors import TROUBLE, failed, words
from millstream.spark.sinks.delta.features import check_features
from millstream.spark.sinks.delta.log import LOG, LogView, Restore, commit_path, newest_version, read_commit
from millstream.spark.sinks.delta.parquet.files import DataFile
from millstream.spark.sinks.delta.parquet.partitions import text
from millstream.spark.sinks.delta.places.place import Place, delta_options, fingerprint, sync
from millstream.spark.sinks.delta.places.remote import RemotePath

log = logging.getLogger("millstream.spark")

_TOKEN: Final = "millstream.commit"
_UNQUOTED: Final = "!$&'()+,-./:;=@_~"
"""What delta-rs does not quote in paths, besides letters and digits."""
_random: Final = random.Random()
"""Our own generator: the program's is neither read nor advanced."""
_PATIENCE_SECONDS: Final = 120.0
"""How long a commit is retried while other commits come first."""


@dataclass(frozen=True, slots=True)
class ActiveFile:
    """A data file of the table at one version."""

    path: str
    """As in the log: usually relative to the table, and URL-quoted."""
    size: int
    partition_values: Mapping[str, str | None]
    least: Mapping[str, Any]
    """The minimum of each column with statistics; a partition column has one value in a file."""
    most: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The unquoted path, as delta-rs takes it, which quotes it in its own way."""
        return unquote(self.path)

    @property
    def can_be_removed(self) -> bool:
        """Whether delta-rs quotes it as the writer did: readers compare quoted paths."""
        return quote(self.name, safe=_UNQUOTED) == self.path

    def where(self, directory: Place) -> Place:
        return directory / self.name.removeprefix("file://")

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """The minimum and maximum of a column; None where they are unknown."""
        least, most = self.least.get(column), self.most.get(column)
        return None if least is None or most is None else (least, most)

    def may_hold(self, column: str, least: Any, most: Any) -> bool:
        """Whether the statistics allow a value from ``least`` to ``most`` in a column."""
        bounds = self.bounds(column)
        return bounds is None or (bounds[0] <= most and least <= bounds[1])


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What one commit does."""

    add: Sequence[DataFile] = ()
    remove: Sequence[ActiveFile] = ()
    transactions: Sequence[tuple[str, int]] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    data_change: bool = True
    """False where the same rows are only written to other files."""


class NotCommittedError(SinkError):
    """A commit failed, and the log shows that nothing was committed."""


class DeltaSnapshot:
    """A table at one version."""

    def __init__(self, table: Table, handle: DeltaTable, log_view: LogView) -> None:
        self.handle = handle
        self.version: int = handle.version()
        self._table = table
        self._log = log_view
        self._older: dict[int, DeltaTable] = {}

    @property
    def transactions(self) -> Mapping[str, int]:
        """All transactions in the log, including those that a restore made void."""
        return self._log.transactions

    def progress(self, name: str) -> Progress | None:
        """An application's progress; after a restore, that of the restored version."""
        return self._progress(name, self.version, self._log.transactions.get)

    def groups(self) -> dict[str, set[str]]:
        """Which groups have progress, by topic."""
        found: dict[str, set[str]] = {}
        for name in self.transactions:
            where = delta_progress.partition_of(name)
            if where is not None and self.progress(name) is not None:
                found.setdefault(where.topic, set()).add(delta_progress.group_of(name))
        return found

    def restored(self) -> dict[str, Progress | None]:
        """The progress of all applications, of any group, that a restore changed and no later commit states.

        Only known restores count: finding others may mean reading the whole log.
        """
        last, read = self._log.last_restore, self._log.transactions.get
        return {
            name: self.progress(name)
            for name in (self._log.transactions if last >= 0 else ())
            if delta_progress.partition_of(name) and delta_progress.committed_at(name, read) < last
        }

    def _progress(self, name: str, version: int, read: Callable[[str], int | None]) -> Progress | None:
        found = delta_progress.decode(name, read)
        if found is None:
            return None
        restore = self._log.restored_since(delta_progress.committed_at(name, read), version)
        if restore is None:
            return found
        older = self._older.get(restore.version)
        if older is None:
            older = self._older[restore.version] = self._table.restored_to(restore)
        return self._progress(name, older.version(), older.transaction_version)

    def files(self) -> list[ActiveFile]:
        """The files of the table at this version."""
        actions = pa.table(self.handle.get_add_actions(flatten=True))
        return [_active(row) for row in actions.to_pylist()]


class _Kept(threading.local):
    """What one thread keeps of a table: handles are updated in place, so threads cannot share one."""

    handle: DeltaTable | None = None
    seen: tuple[object, ...] | None = None
    log_view: LogView | None = None


class Table:
    """A Delta table in a place."""

    def __init__(self, directory: Place) -> None:
        self.directory = directory
        self._kept = _Kept()
        self.unsettled: set[str] = set()
        """Files of commits to an object store that may still arrive there: they must not be deleted."""

    @property
    def exists(self) -> bool:
        return (self.directory / LOG).is_dir() and DeltaTable.is_deltatable(
            str(self.directory), delta_options(self.directory)
        )

    def look(self) -> DeltaSnapshot | None:
        """A snapshot of the newest version, or None without a table; valid until this thread's next call."""
        try:
            if not (self.directory / LOG).is_dir():
                return None
            handle = self._handle()
        except TableNotFoundError:
            return None
        except TROUBLE as error:
            remedy = f"Repair its log ({LOG}), or load into another table"
            raise failed(f"the Delta table {self.directory} cannot be opened", error, remedy) from error
        check_features(handle, self.directory)
        view = self._kept.log_view = self._kept.log_view or LogView(self.directory)
        view.refresh(str(handle.metadata().id), handle.version())
        return DeltaSnapshot(self, handle, view)

    def _handle(self) -> DeltaTable:
        """A handle at the newest version: the kept one, unless its table was recreated since."""
        handle = self._kept.handle
        if handle is not None and self._kept.seen == self._newest_commit(handle):
            handle.update_incremental()
        else:
            handle = self._open()
        self._kept.handle, self._kept.seen = handle, self._newest_commit(handle)
        return handle

    def _newest_commit(self, handle: DeltaTable) -> tuple[object, ...] | None:
        """Identifies the file of the handle's last commit: another file of that name is another table's."""
        return fingerprint(commit_path(self.directory, handle.version()))

    def _open(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(str(self.directory), version, delta_options(self.directory))

    def restored_to(self, restore: Restore) -> DeltaTable:
        """The version that a restore went back to."""
        version = restore.parameters.get("version")
        try:
            if version is not None:
                return self._open(int(version))
            handle = self._open(restore.version - 1)
            handle.load_as_version(_moment(restore.parameters))
        except (DeltaError, OSError, KeyError, ValueError) as error:
            raise SinkError(
                f"the Delta table {self.directory} was restored in version {restore.version}, but the "
                f"version it went back to can no longer be read ({error}), so the progress is unknown. Load "
                "into a new table, or restore by version"
            ) from error
        return handle

    def transact(
        self, decide: Callable[[DeltaSnapshot], CommitPlan | None], undo: Callable[[], None] = lambda: None
    ) -> bool:
        """Commit what ``decide`` plans on the newest snapshot; plan again when another commit came first.

        ``decide`` may raise, or return None for no commit. Returns True when the commit has been read back
        from the log and is on disk, False when there was none; raises SinkError when it failed, or when its
        outcome is unknown. ``undo`` is called only when it is certain that nothing was committed: it may
        delete the files that the commit would have added. Otherwise they stay, as data or as litter.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        attempt = 0
        certain = True
        change: CommitPlan | None = None
        try:
            while (change := decide(snapshot := self._look_again())) is not None:
                certain = False  # until the log was read: an interrupt may come at any time
                if self._commit(snapshot, change):
                    return True
                certain = True
                attempt += 1
                self._wait(attempt, deadline)
        except BaseException as error:
            if certain or isinstance(error, NotCommittedError):
                undo()
            elif change is not None and isinstance(self.directory, RemotePath):
                self.unsettled.update(file.path for file in change.add)
            raise
        undo()
        return False

    def _look_again(self) -> DeltaSnapshot:
        snapshot = self.look()
        if snapshot is None:
            raise SinkError(f"the Delta table {self.directory} was deleted while it was being loaded")
        return snapshot

    def _wait(self, attempt: int, deadline: float) -> None:
        """Sleep for a random time, so that two writers do not collide again."""
        if time.monotonic() > deadline:
            raise SinkError(
                f"the Delta table {self.directory} is written to so often that no commit succeeded within "
                f"{_PATIENCE_SECONDS:.0f} seconds; nothing was changed, and running again is safe"
            )
        time.sleep(_random.uniform(0, min(0.5, 0.005 * 2**attempt)))

    def _commit(self, seen: DeltaSnapshot, change: CommitPlan) -> bool:
        """Commit as the version after ``seen``; False when that version is another writer's."""
        token = uuid.uuid4().hex
        error: Exception | None = None
        try:
            _write(seen.handle, change, token)
        except Exception as caught:  # noqa: BLE001 - only the log shows the outcome
            error = caught
        try:
            return self._outcome(seen.version + 1, token, change, error)
        except (OSError, ValueError) as unread:
            raise SinkError(
                f"whether commit {seen.version + 1} of the Delta table {self.directory} was made is unknown, "
                f"as the log cannot be read: {unread}. Running again is safe"
            ) from unread

    def _outcome(self, version: int, token: str, change: CommitPlan, error: Exception | None) -> bool:
        """Whether the log has our commit as this version, whatever delta-rs returned or raised."""
        actions = read_commit(self.directory, version)
        if actions is None:
            what = f"a commit to the Delta table {self.directory}"
            done = f"{what} was reported as done, but is not in the log"
            # A commit that is not there may have been cleaned up after later commits. On its way to an object
            # store, it may even arrive after its answer was given up.
            local = not isinstance(self.directory, RemotePath)
            certain = local and error is not None and newest_version(self.directory) < version
            kind = NotCommittedError if certain else SinkError
            raise kind(words(f"{what} failed", error) if error is not None else done) from error
        if not any(action.get("commitInfo", {}).get(_TOKEN) == token for action in actions):
            if error is None:
                raise SinkError(
                    f"a commit to the Delta table {self.directory} was reported as done, but version "
                    f"{version} is another writer's"
                )
            return False
        stored = {a["txn"]["appId"]: int(a["txn"]["version"]) for a in actions if "txn" in a}
        assert stored == dict(change.transactions), (stored, change.transactions)
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        assert removed == {file.path for file in change.remove}, (removed, change.remove)
        if error is not None:
            log.warning(
                "commit %d of %s is in the log, in spite of the error: %s", version, self.directory, error
            )
        self._sync(version)
        return True

    def _sync(self, version: int) -> None:
        """Fsync a commit: delta-rs does not."""
        try:
            sync(commit_path(self.directory, version))
            sync(self.directory / LOG)
        except OSError as error:
            raise SinkError(
                f"commit {version} of the Delta table {self.directory} was made, but may not survive a power "
                f"cut: {error}. Running again is safe"
            ) from error


def _write(handle: DeltaTable, change: CommitPlan, token: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    partition_by = handle.metadata().partition_columns
    added = [
        AddAction(f.path, f.size, dict(f.partition_values), f.modified_ms, change.data_change, f.stats)
        for f in change.add
    ]
    removed = [
        RemoveAction(f.name, change.data_change, now_ms, f.size, dict(f.partition_values))
        for f in change.remove
    ]
    handle.create_write_transaction(
        [*added, *removed],
        "append",
        handle.schema(),
        partition_by,
        commit_properties=CommitProperties(
            custom_metadata={**change.metadata, _TOKEN: token},
            max_commit_retries=0,
            app_transactions=[Transaction(name, version, now_ms) for name, version in change.transactions],
        ),
    )


def _moment(parameters: Mapping[str, Any]) -> datetime:
    """The time to which a table was restored: milliseconds from delta-rs, text from Spark."""
    given = str(parameters.get("datetime") or parameters["timestamp"])
    if given.isdecimal():
        return datetime.fromtimestamp(int(given) / 1000, UTC)
    moment = datetime.fromisoformat(given)
    if moment.tzinfo is None:
        raise ValueError(f"the time zone of {given} is unknown")
    return moment


def _active(row: Mapping[str, Any]) -> ActiveFile:
    partition = _under(row, "partition.")
    return ActiveFile(
        path=row["path"],
        size=row["size_bytes"],
        partition_values={name: text(value) for name, value in partition.items()},
        least=_under(row, "min.") | partition,
        most=_under(row, "max.") | partition,
    )


def _under(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
