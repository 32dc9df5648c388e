"""Tasks that come to grief where a test wants it: they fail, or wait for somebody to kill them.

The writer of a sink is wrapped before it travels to the tasks. Each attempt that writes rows tells of itself
in a directory, so that a test knows which process to kill, and afterwards who has written what.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from millstream.spark.sinks.base import TaskOutput, TaskWriter, Written
from tests.waiting import until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

ATTEMPT_SECONDS = 150.0
"""How long an attempt waits, and is waited for: Spark may have to start processes meanwhile."""

LET_GO = "let-go"
"""The file that lets further attempts go on."""

Point = Literal["writing", "written"]
"""An attempt has handed over its first rows; or all, and they are durable, but nobody knows yet."""


@dataclass(frozen=True)
class Fault:
    """What happens to the first attempts, ``times`` of them, that get to a point."""

    directory: str
    kind: Literal["fail", "wait"] = "wait"
    point: Point = "written"
    times: int = 0
    holds: bool = False
    """Whether further attempts of a task wait at the point, too, until they are let go: on a busy machine
    Spark may start one before a test has killed the first, and would then end the first by itself.
    """

    def strike(self, point: Point) -> None:
        """Fail or wait, if it is this attempt's turn."""
        if point != self.point:
            return
        for number in range(self.times):
            try:
                (Path(self.directory) / f"turn-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            if self.kind == "fail":
                raise RuntimeError("this attempt was to fail")
            self._wait(number)
            return
        if self.holds and _context().attemptNumber() > 0:
            until((Path(self.directory) / LET_GO).exists, "the first attempt is killed", ATTEMPT_SECONDS)

    def _wait(self, number: int) -> None:
        _put(Path(self.directory) / f"waiting-{number}", _this_attempt("waiting"))
        until((Path(self.directory) / "go").exists, "the attempt is killed, or may go on", ATTEMPT_SECONDS)


@dataclass(frozen=True)
class Attempt:
    """One attempt of one task, as it has told."""

    point: str
    partition: int
    """Which of the tasks of its stage."""
    number: int
    """No other attempt has it."""
    worker: int
    """The process that runs Python for the task."""
    executor: int
    """The process that Spark runs in there: the worker's parent's parent."""


def attempts(directory: Path, point: str) -> list[Attempt]:
    """Those that came to the point, or are waiting (``waiting``)."""
    return sorted(_read(directory, point), key=lambda one: one.number)


def _read(directory: Path, point: str) -> Iterator[Attempt]:
    for path in directory.glob(f"{point}-*"):
        yield Attempt(**json.loads(path.read_text()))


@dataclass(frozen=True)
class FaultyWriter:
    """A sink's writer, whose attempts tell of themselves, and come to grief."""

    inner: TaskWriter
    fault: Fault

    def open(self) -> TaskOutput:
        return FaultyOutput(self.inner.open(), self.fault)

    def refusals(self, batch: pa.RecordBatch) -> Any:
        ask = getattr(self.inner, "refusals", None)
        return None if ask is None else ask(batch)


class FaultyOutput:
    def __init__(self, inner: TaskOutput, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault
        self._has_rows = False

    def write_rows(self, batch: pa.RecordBatch) -> None:
        self._inner.write_rows(batch)
        if not self._has_rows:
            self._has_rows = True
            self._at("writing")

    def write_rejected(self, batch: pa.RecordBatch) -> None:
        self._inner.write_rejected(batch)

    def finish(self) -> Written:
        written = self._inner.finish()
        if self._has_rows:
            self._at("written")
        return written

    def abort(self) -> None:
        self._inner.abort()

    def _at(self, point: Point) -> None:
        _put(Path(self._fault.directory) / f"{point}-{uuid.uuid4().hex}", _this_attempt(point))
        self._fault.strike(point)


def _this_attempt(point: str) -> dict[str, object]:
    context = _context()
    return {
        "point": point,
        "partition": context.partitionId(),
        "number": context.taskAttemptId(),
        "worker": os.getpid(),
        "executor": _parent(os.getppid()),
    }


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context


def _parent(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("PPid:"))
    return int(line.split()[1])


def _put(path: Path, told: dict[str, object]) -> None:
    """In one step: who sees the file sees all of it."""
    draft = path.with_name(f".{uuid.uuid4().hex}")
    draft.write_text(json.dumps(told))
    draft.rename(path)
