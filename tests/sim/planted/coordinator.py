"""Planted bugs of commits, and of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from unittest.mock import patch

from millstream.broker.groups.outcome import Effects
from millstream.broker.groups.requests.commits import CommitHandler
from millstream.broker.groups.requests.rebalance import Rebalances
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.table import GroupTable
from millstream.consumer.offsets.commits import OffsetCommits, PendingCommit
from millstream.errors import ErrorCode, MillstreamError
from tests.sim.families import chaos
from tests.sim.planted.mutation import Mutation, nothing


def _commits_as_somebody_else() -> tuple[Any, ...]:
    """A commit from before a loss goes out as the member that was born after it."""

    def is_current(self: OffsetCommits, commit: PendingCommit) -> bool:
        try:
            commit.identity = self._group.commit_identity()
        except MillstreamError:  # wait for better times
            commit.retry_at_ms = max(commit.retry_at_ms, commit.deadline_ms - 4_000) + 100
            return False
        return True

    return (patch.object(OffsetCommits, "_is_current", is_current),)


def _async_repeats() -> tuple[Any, ...]:
    original = PendingCommit.__init__

    def init(self: PendingCommit, *args: Any, **keywords: Any) -> None:
        original(self, *args, **keywords)
        self.repeats = True

    def latest(self: OffsetCommits, commit: PendingCommit) -> bool:
        commit.attempts, attempts = 0, commit.attempts
        try:
            return current(self, commit)
        finally:
            commit.attempts = attempts

    current = OffsetCommits._is_current
    return (patch.object(PendingCommit, "__init__", init), patch.object(OffsetCommits, "_is_current", latest))


def _acknowledges_early() -> tuple[Any, ...]:
    def write(self: Effects, records: Any, then: Any) -> None:
        self.records += records
        then(ErrorCode.NONE, self)

    return (patch.object(Effects, "write", write),)


def _accepts_stale_commits() -> tuple[Any, ...]:
    def refusal(self: Any, group: Any, request: Any, version: int) -> ErrorCode:
        return ErrorCode.NONE

    return (patch.object(CommitHandler, "_caller_error", refusal),)


def _same_generation() -> tuple[Any, ...]:
    original = ClassicGroup.next_generation

    def next_generation(self: ClassicGroup, epoch_ms: int) -> None:
        original(self, epoch_ms)
        self.generation = max(1, self.generation - 1)

    return (patch.object(ClassicGroup, "next_generation", next_generation),)


def _sessions_never_end() -> tuple[Any, ...]:
    return (patch.object(Rebalances, "session_timeout", nothing),)


def _nobody_is_fenced() -> tuple[Any, ...]:
    original = ClassicGroup.member_error

    def member_error(self: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        error = original(self, member_id, instance_id)
        return ErrorCode.NONE if error is ErrorCode.FENCED_INSTANCE_ID else error

    def caller_error(self: GroupTable, group: Any, member_id: str, instance_id: Any, generation: int) -> Any:
        error = checked(self, group, member_id, instance_id, generation)
        return ErrorCode.NONE if error is ErrorCode.FENCED_INSTANCE_ID else error

    checked = GroupTable.caller_error
    return (
        patch.object(ClassicGroup, "member_error", member_error),
        patch.object(GroupTable, "caller_error", caller_error),
    )


def _forgets_groups() -> tuple[Any, ...]:
    return (
        patch.object(
            ClassicGroup, "restored", classmethod(lambda cls, group_id, stored: ClassicGroup(group_id))
        ),
    )


MUTATIONS: Final[Mapping[str, Mutation]] = {
    "commits-as-somebody-else": Mutation(
        "a commit that was made before partitions were lost is sent with the identity of after",
        _commits_as_somebody_else,
    ),
    "async-repeats": Mutation(
        "an asynchronous commit is repeated although a later one was made", _async_repeats, chaos
    ),
    "acknowledges-early": Mutation(
        "the coordinator answers before its records are on the disk", _acknowledges_early
    ),
    "accepts-stale-commits": Mutation(
        "the coordinator stores the commits of old generations and former members", _accepts_stale_commits
    ),
    "same-generation": Mutation("a rebalance ends in the generation that it began in", _same_generation),
    "sessions-never-end": Mutation("the coordinator keeps members that are dead", _sessions_never_end),
    "nobody-is-fenced": Mutation(
        "the coordinator goes on with a static member that was replaced", _nobody_is_fenced
    ),
    "forgets-groups": Mutation(
        "a coordinator that restarts remembers offsets but no groups", _forgets_groups
    ),
}
