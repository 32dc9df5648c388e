"""One run of a load: plan, load a cycle, commit, until nothing is left or a stop is requested.

This file keeps the order in which things become durable; ``decisions`` and ``planning`` decide what is done.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from millstream.errors import CommitFailedError, RebalanceInProgressError
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.commit_metadata import STARTING, CommitMetadata
from millstream.spark.load.decisions.cycles import (
    AGGREGATING_CORES,
    Backlog,
    Throughput,
    budget,
    ranges_of,
    within_bytes,
)
from millstream.spark.load.engine.context import RunContext
from millstream.spark.load.engine.joining import FOR_GROUP, JOINING, GroupJoin
from millstream.spark.load.engine.members import LoadMember
from millstream.spark.load.engine.planning import LoadPlan, Planner
from millstream.spark.load.engine.retries import RetryBudget
from millstream.spark.load.engine.stopping import StoppedError, StopRequest
from millstream.spark.load.engine.tasks import CycleTasks
from millstream.spark.load.engine.watching import LoadSnapshot
from millstream.spark.load.pipeline.jobs import JobInterruptedError
from millstream.spark.load.points import Detail, Point
from millstream.spark.load.report import LoadReport, Tally
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import Cycle, ProgressConflictError, Written
from millstream.spark.sinks.capabilities import names_of

log = logging.getLogger("millstream.spark.load")

_IDLE_SECONDS: Final = 0.1
_OTHERS_SECONDS: Final = 0.5
_PASSING_SECONDS: Final = 5.0
_FEW_OFFSETS: Final = 1_000
"""A cycle of at most this many offsets is small, however large each record is."""
_COMPACT_CYCLES: Final = 16
"""How many cycles a continuous load commits before it joins their files."""


class CycleAborted(Exception):  # noqa: N818 - not an error
    """The cycle was aborted: partitions revoked, topic recreated, or stop requested."""


class LoadRun:
    """Runs a load once or continuously. Used by one thread; ``snapshot`` by any."""

    def __init__(
        self,
        context: RunContext,
        session: Callable[[], Any],
        member: LoadMember,
        planner: Planner,
        stop: StopRequest,
    ) -> None:
        """``session`` waits for Spark, which may still be starting; it is called when there is work."""
        self._context = context
        self._tasks = CycleTasks(context, session)
        self._member = member
        self._planner = planner
        self._stop = stop
        self._began = time.monotonic()
        self._tally = Tally(LoadReport(context.group_id, context.sink.name))
        self._throughput = Throughput()
        self._lag = 0
        self._losses = 0
        self._state = JOINING
        self._joining: GroupJoin | None = None
        self._offsets_done = 0
        self._compacted = 0
        self._retries = RetryBudget(self._tally, stop, context.retry_seconds)
        self._refused_since: float | None = None

    # ---- the two ways to run

    def once(self) -> LoadReport:
        """Load up to the ends at the start; other members of the group may load their share."""
        with suppress(StoppedError):
            self._once()
        return self._report()

    def _once(self) -> None:
        targets: dict[TopicPartition, int] | None = None
        self._join(RetryBudget(self._tally, self._stop, self._context.retry_seconds))
        while not self._stop.is_requested:
            plan = self._retries.attempt(self._plan)
            if plan is None:
                continue
            if targets is None:
                targets = {one: seen.readable_end for one, seen in plan.seen.items()}
            if self._advance(plan, targets):
                continue
            if plan.reached(targets):
                break
            self._state = FOR_GROUP
            self._member.wait_change(_OTHERS_SECONDS if self._member.owned() else _IDLE_SECONDS)
        if not self._stop.is_requested:
            self._compact()

    def forever(self, every: float) -> LoadReport:
        """Load new records every ``every`` seconds, until a stop is requested."""
        self._retries.run_continuously()
        endless = RetryBudget(self._tally, self._stop, math.inf)  # until there is work
        endless.run_continuously()
        with suppress(StoppedError):
            self._join(endless)
            while not self._stop.is_requested:
                due = time.monotonic() + every
                self._catch_up()
                if self._tally.so_far.cycles - self._compacted >= _COMPACT_CYCLES:
                    self._compact()
                self._state = "waiting"
                self._stop.wait(max(_IDLE_SECONDS / 2, due - time.monotonic()))
        return self._report()

    def _join(self, retries: RetryBudget) -> None:
        """Wait for the first assignment."""
        self._joining = GroupJoin(
            self._context.group_id, self._member, self._planner.reach, retries, self._stop
        )
        self._joining.wait()
        self._joining = None

    def _catch_up(self) -> None:
        """Load up to the current ends."""
        ends: dict[TopicPartition, int] | None = None
        while not self._stop.is_requested:
            plan = self._retries.attempt(self._plan)
            if plan is None:
                continue
            if ends is None or not set(plan.starts) <= set(ends):
                ends = {one: seen.readable_end for one, seen in plan.seen.items()}
            if not self._advance(plan, ends):
                break

    def _advance(self, plan: LoadPlan, ends: Mapping[TopicPartition, int]) -> bool:
        """Do the next step of the plan; False if there is none."""
        if plan.anchors:
            self._retries.attempt(partial(self._anchor, plan))
            return True
        if plan.repairs:
            self._retries.attempt(partial(self._repair, plan))
            return True
        backlogs = [one for one in plan.backlogs(ends) if one.offsets > 0]
        if not backlogs:
            self._retries.renew()
            return False
        self._need_spark()
        ranges = self._ranges(plan, backlogs)
        self._retries.attempt(partial(self._cycle, plan, ranges), ranges)
        return True

    def _ranges(self, plan: LoadPlan, backlogs: Sequence[Backlog]) -> list[OffsetRange]:
        """The ranges of the next cycle."""
        bounds, rates = self._context.bounds, self._throughput
        cores = AGGREGATING_CORES if self._context.pipeline.aggregates else self._tasks.cores
        ranges = ranges_of(backlogs, budget(bounds, rates, cores))
        if bounds.max_bytes is None and sum(one.offsets for one in ranges) <= _FEW_OFFSETS:
            return ranges  # not worth a query
        return within_bytes(ranges, bounds, rates, cores, self._planner.sizes(plan))

    def _need_spark(self) -> None:
        if not self._tasks.has_spark:
            self._state = "starting Spark"
        waited = self._tasks.prepare()
        if waited:
            self._tally.so_far = replace(self._tally.so_far, spark_seconds=waited)

    # ---- planning

    def _plan(self) -> LoadPlan | None:
        self._context.observer(Point.PLANNING, Detail())
        self._losses = self._member.losses
        plan = self._planner.plan(self._member.owned())
        if plan.refusals and all(one.passing for one in plan.refusals):
            now = time.monotonic()
            self._refused_since = self._refused_since or now
            if now - self._refused_since < _PASSING_SECONDS:
                self._stop.wait(_IDLE_SECONDS)
                return None
        plan.raise_refusals(self._context.sink.name, self._tally.so_far.loaded)
        self._refused_since = None
        for note in plan.notes:
            if note not in self._tally.so_far.notes:
                log.warning("%s", note)
        self._tally.add_notes(plan.notes)
        self._lag = plan.lag
        return plan

    def _anchor(self, plan: LoadPlan) -> None:
        """Move progress without rows: to a partition's first start, a rewind, or past a loss."""
        anchored = {one: plan.starts[one] for one in plan.anchors}
        offsets = {one: start.offset for one, start in anchored.items()}
        first = {one: offsets[one] for one, start in anchored.items() if start.group_first}
        if first and not self._commit_group(first, STARTING):
            self._member.wait_change(_IDLE_SECONDS)
            return
        lost = plan.lost(datetime.now(UTC))
        advances = tuple(plan.advance(one, offset, offset) for one, offset in offsets.items())
        self._context.sink.commit(
            Cycle(self._context.group_id, _new_id(), advances, (), lost), self._between_tables(Detail())
        )
        self._tally.add_lost(lost)
        self._commit_group(offsets, STARTING)

    def _repair(self, plan: LoadPlan) -> None:
        """Commit the sink's progress to the group: until then a moved offset still asks for a seek."""
        if not self._commit_group(plan.repairs, "repair"):
            self._member.wait_change(_IDLE_SECONDS)

    # ---- a cycle

    def _cycle(self, plan: LoadPlan, ranges: Sequence[OffsetRange]) -> None:
        cycle_id = _new_id()
        tag = f"millstream-load-{cycle_id}"
        partitions = frozenset(one.topic_partition for one in ranges)
        if not self._member.hold(partitions, partial(self._tasks.interrupt, tag)):
            return
        if self._stop.is_requested:  # requested before there was a cycle to abort
            self._member.release()
            return
        written: list[Written] = []
        try:
            self._state = "loading"
            self._load(plan, ranges, cycle_id, tag, written)
        except (CycleAborted, JobInterruptedError, StoppedError):
            self._abandon(cycle_id, written)
            log.info("cycle %s was aborted", cycle_id)
        except Exception as error:
            # If the commit itself failed, the sink knows whether it happened, and deletes only leftovers.
            self._abandon(cycle_id, written)
            if not self._member.is_aborted or isinstance(error, ProgressConflictError):
                raise
            log.info("cycle %s was aborted: %s", cycle_id, error)
        finally:
            self._tally.add_notes(self._tasks.take_notes())
            self._member.release()

    def _abandon(self, cycle_id: str, written: Sequence[Written]) -> None:
        try:
            self._context.sink.abandon(cycle_id, written)
        except Exception as error:  # noqa: BLE001 - only leftovers, and something else has failed already
            log.warning("what cycle %s had written could not be deleted: %s", cycle_id, error)

    def _load(
        self, plan: LoadPlan, ranges: Sequence[OffsetRange], cycle_id: str, tag: str, written: list[Written]
    ) -> None:
        began = time.monotonic()
        advances = tuple(plan.advance(one.topic_partition, one.start, one.end) for one in ranges)
        detail = Detail(cycle_id, tuple(ranges))
        results = self._tasks.run(detail, tag)
        written += [result.written for result in results]
        detail = replace(
            detail, rows=sum(one.rows for one in written), rejected=sum(one.rejected for one in written)
        )
        self._context.observer(Point.TASKS_DONE, detail)
        # Offsets of a topic that was recreated meanwhile are not those that were planned.
        if not self._planner.still_holds(plan, [one.topic_partition for one in ranges]):
            raise CycleAborted
        if not self._member.seal():
            raise CycleAborted
        self._state = "committing"
        cycle = self._planner.cycle(cycle_id, advances, written, datetime.now(UTC))
        self._context.sink.commit(cycle, self._between_tables(detail))
        written.clear()  # committed: not to be abandoned, whatever fails from here on
        seconds = time.monotonic() - began
        self._committed(detail, cycle.written, sum(result.records for result in results), seconds)
        self._context.observer(Point.SINK_COMMITTED, detail)
        if self._commit_group({one.topic_partition: one.end for one in ranges}, cycle_id):
            self._context.observer(Point.GROUP_COMMITTED, detail)

    def _committed(self, detail: Detail, written: Sequence[Written], records: int, seconds: float) -> None:
        offsets = sum(one.offsets for one in detail.ranges)
        size = sum(one.size for one in written)
        self._throughput = self._throughput.after(offsets, size, seconds)
        self._offsets_done += offsets
        self._lag = max(0, self._lag - offsets)
        self._retries.renew()
        self._tally.add(
            LoadReport(
                self._context.group_id,
                self._context.sink.name,
                loaded=detail.rows,
                rejected=detail.rejected,
                records=records,
                ranges=detail.ranges,
                bytes=size,
                files=sum(one.files for one in written),
                cycles=1,
            )
        )
        log.info("cycle %s: %d rows, %d rejected", detail.cycle_id, detail.rows, detail.rejected)

    def _between_tables(self, detail: Detail) -> Callable[[str], None]:
        return lambda place: self._context.observer(Point.BETWEEN_TABLES, detail)

    def _commit_group(self, offsets: Mapping[TopicPartition, int], cycle_id: str) -> bool:
        """Commit the sink's progress to the group; False if this is not a member at the moment.

        Nothing is lost then: the next plan repairs the group from the sink.
        """
        context = self._context
        metadata = str(CommitMetadata(cycle_id, names_of(context.sink)[0], context.read_committed))
        try:
            self._member.commit(
                {one: OffsetAndMetadata(offset, metadata) for one, offset in offsets.items()},
                losses=self._losses,
            )
        except (CommitFailedError, RebalanceInProgressError) as error:
            log.info("the next plan will commit the group's offsets: %s", error)
            return False
        return True

    def _compact(self) -> None:
        if self._context.compact_bytes is None:
            return
        self._state = "compacting"
        self._compacted = self._tally.so_far.cycles
        self._context.observer(Point.COMPACTING, Detail())
        try:
            self._context.sink.compact(self._context.compact_bytes, lambda place: None)
        except Exception as error:  # noqa: BLE001 - the rows are committed: joining their files can wait
            log.warning("small files were not joined: %s", error)
            self._tally.add_notes([f"small files were not joined: {error}"])

    # ---- what came of it

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _report(self) -> LoadReport:
        return replace(self._tally.so_far, seconds=self._seconds, stopped=self._stop.is_requested)

    def snapshot(self) -> LoadSnapshot:
        """The current progress. From any thread."""
        joining, read = self._joining, self._tasks.read
        return LoadSnapshot(
            state=self._tasks.state or self._state if joining is None else joining.state,
            loaded=self._tally.so_far.loaded,
            rejected=self._tally.so_far.rejected,
            offsets_done=self._offsets_done + read,
            offsets_left=max(0, self._lag - read),
            partitions=self._member.owned_count,
            cycles=self._tally.so_far.cycles,
            seconds=self._seconds,
        )


def _new_id() -> str:
    return uuid.uuid4().hex[:16]
