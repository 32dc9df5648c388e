"""What the Delta sink takes for granted of delta-rs: if a new release changes it, these say so first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from millstream.spark.sinks.base import SinkError
from millstream.spark.sinks.delta.log import LOG, LogView, named_files

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    DeltaTable.create(str(tmp_path / "t"), Schema.from_arrow(SCHEMA))
    return tmp_path / "t"


def commit(
    handle: DeltaTable,
    versions: Mapping[str, int],
    actions: list[AddAction | RemoveAction] | None = None,
    retries: int | None = None,
) -> None:
    handle.create_write_transaction(
        actions or [],
        "append",
        handle.schema(),
        commit_properties=CommitProperties(
            max_commit_retries=retries, app_transactions=[Transaction(a, v) for a, v in versions.items()]
        ),
    )


def opened(path: Path) -> DeltaTable:
    return DeltaTable(str(path))


def add(path: Path, name: str) -> AddAction:
    pq.write_table(pa.table({"n": [1]}), path / name)
    return AddAction(name, (path / name).stat().st_size, {}, 0, True, json.dumps({"numRecords": 1}))


def view(path: Path) -> LogView:
    """The log as the sink reads it."""
    found = LogView(path)
    handle = opened(path)
    found.refresh(str(handle.metadata().id), handle.version())
    return found


def test_of_two_handles_at_one_version_the_second_is_refused(path: Path) -> None:
    """2, 3: the compare-and-set, also without ours."""
    first, second = opened(path), opened(path)
    commit(first, {"a": 10})
    with pytest.raises(CommitFailedError, match="Concurrent transaction"):
        commit(second, {"a": 20})
    assert opened(path).transaction_version("a") == 10


def test_without_retries_a_commit_is_the_next_version_or_none(path: Path) -> None:
    first, second = opened(path), opened(path)
    commit(first, {"a": 10})
    with pytest.raises(CommitFailedError):
        commit(second, {"b": 20}, retries=0)
    assert opened(path).version() == 1
    commit(second, {"b": 20}, retries=1)  # delta-rs finds for itself that they get along
    assert opened(path).version() == 2


def test_versions_may_fall_and_repeat(path: Path) -> None:
    """7: delta-rs does not skip a commit whose version is not above the stored one."""
    for version in (10, 3, 3, -1):
        commit(opened(path), {"a": version})
        assert opened(path).transaction_version("a") == version
        assert view(path).transactions["a"] == version
    assert opened(path).version() == 4


def test_transactions_survive_checkpoints_and_clean_up(path: Path) -> None:
    commit(opened(path), {f"a{n}": n for n in range(3000)})
    for number in range(5):
        commit(opened(path), {"b": number}, [add(path, f"f{number}")])
    opened(path).create_checkpoint()
    for old in range(6):
        (path / LOG / f"{old:020d}.json").unlink()
    opened(path).cleanup_metadata()
    handle, found = opened(path), view(path)
    assert handle.transaction_version("a2999") == found.transactions["a2999"] == 2999
    assert handle.transaction_version("b") == found.transactions["b"] == 4
    assert len(found.transactions) == 3001
    commit(opened(path), {"b": 9})
    assert view(path).transactions["b"] == 9
    assert named_files(path) == {f"f{n}" for n in range(5)}


def test_the_log_is_read_on_from_where_it_was(path: Path) -> None:
    found = view(path)
    for number in range(5):
        commit(opened(path), {"a": number})
    handle = opened(path)
    found.refresh(str(handle.metadata().id), handle.version())
    assert (found.version, found.transactions) == (5, {"a": 4})
    opened(path).create_checkpoint()
    for number in range(5, 8):
        commit(opened(path), {"b": number})
    opened(path).create_checkpoint()
    for old in range(8):
        (path / LOG / f"{old:020d}.json").unlink()
    handle = opened(path)
    found.refresh(str(handle.metadata().id), handle.version())
    assert found.transactions == {"a": 4, "b": 7}


def test_a_restore_leaves_transactions_as_they_are(path: Path) -> None:
    """9: so the sink must look for restores."""
    commit(opened(path), {"a": 1}, [add(path, "one")])
    commit(opened(path), {"a": 2}, [add(path, "two")])
    opened(path).restore(1)
    assert opened(path).transaction_version("a") == 2
    assert len(opened(path).file_uris()) == 1
    restore = view(path).restored_since(2, 3)
    assert restore is not None
    assert (restore.version, restore.parameters["version"]) == (3, "1")
    assert view(path).restored_since(3, 3) is None


@pytest.mark.parametrize("data_change", [True, False])
def test_of_two_that_remove_a_file_the_second_is_refused_only_where_data_changed(
    path: Path, data_change: bool
) -> None:
    """Beside a compaction delta-rs lets both through, and rows are doubled: one more reason to let it decide
    nothing. Two compactions of its own overlap like that too.
    """
    commit(opened(path), {}, [add(path, "one")])
    first, second = opened(path), opened(path)
    commit(first, {}, [RemoveAction("one", data_change, 0, 1, {}), add(path, "joined")])
    if data_change:
        with pytest.raises(CommitFailedError):
            commit(second, {}, [RemoveAction("one", True, 0, 1, {}), add(path, "other")])
    else:
        commit(second, {}, [RemoveAction("one", True, 0, 1, {}), add(path, "other")])
        assert pa.table(opened(path).scan()).num_rows == 2


def test_a_log_with_a_hole_is_not_read_past(path: Path) -> None:
    for number in range(3):
        commit(opened(path), {"a": number})
    handle = opened(path)
    (path / LOG / f"{2:020d}.json").unlink()
    with pytest.raises(SinkError, match="commit 2"):
        LogView(path).refresh(str(handle.metadata().id), 3)
