"""Offset resets: move a group to another position in its topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from millstream.admin.call import AdminCall, Partitions
from millstream.admin.committed import commit_offsets, committed_offsets, non_empty_group
from millstream.admin.groups import describe_groups
from millstream.admin.offsets import OffsetSpec, list_offsets, log_bounds, offset_or
from millstream.admin.values import OffsetReset
from millstream.errors import GroupIdNotFoundError, MisuseError
from millstream.model import RESET_METADATA, OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where a group is moved to. Exactly one of the four is given."""

    to: OffsetSpec | timedelta | None = None
    offset: int | None = None
    shift: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.to, self.offset, self.shift, self.offsets)) != 1:
            raise MisuseError("give exactly one of to, offset, shift and offsets")


def reset_offsets(
    call: AdminCall, group: str, target: ResetTarget, topics: Partitions | None, *, dry_run: bool
) -> dict[TopicPartition, OffsetReset]:
    """Move a group's committed offsets; returns the old and the new offset of each partition."""
    before = committed_offsets(call, group)
    if target.offsets is not None:
        wanted = [TopicPartition(*partition) for partition in target.offsets]
    else:
        wanted = _partitions_to_reset(call, group, topics, before)
    if not dry_run:
        _require_no_members(call, group)
    bounds = log_bounds(call, wanted)
    after = _destinations(call, target, before, bounds)
    resets = {one: _reset(one, before.get(one), after[one], bounds[one]) for one in sorted(wanted)}
    if not dry_run:
        moved = {one: OffsetAndMetadata(reset.after, RESET_METADATA) for one, reset in resets.items()}
        commit_offsets(call, group, moved)
    return resets


def _partitions_to_reset(
    call: AdminCall,
    group: str,
    topics: Partitions | None,
    before: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[TopicPartition]:
    if topics is not None:
        return call.partitions(topics)
    if not before:
        raise GroupIdNotFoundError(f"group {group} has committed nothing: name the topics to set it to")
    names = {topic for topic, _ in before}
    return call.partitions(names & set(call.metadata(names).topics))


def _require_no_members(call: AdminCall, group: str) -> None:
    try:
        described = describe_groups(call, group, lag=False)[group]
    except GroupIdNotFoundError:
        return
    if described.members:
        raise non_empty_group(group, [member.client_id for member in described.members])


def _destinations(
    call: AdminCall,
    target: ResetTarget,
    before: Mapping[TopicPartition, OffsetAndMetadata],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, int]:
    """The new offset of each partition, which its log may not have."""
    if target.offsets is not None:
        return {TopicPartition(*one): value for one, value in target.offsets.items()}
    if target.offset is not None:
        return dict.fromkeys(bounds, target.offset)
    if target.shift is not None:
        # Without a commit, the log's start is the only position to count from.
        return {
            one: (before[one].offset if one in before else start) + target.shift
            for one, (start, _) in bounds.items()
        }
    to = datetime.now(UTC) - target.to if isinstance(target.to, timedelta) else target.to
    assert to is not None, "one target is given"
    found = list_offsets(call, bounds.keys(), to)
    return {one: offset_or(found[one], end) for one, (_, end) in bounds.items()}


def _reset(
    partition: TopicPartition, before: OffsetAndMetadata | None, wanted: int, bounds: tuple[int, int]
) -> OffsetReset:
    start, end = bounds
    after = min(max(wanted, start), end)
    committed = None if before is None else before.offset
    return OffsetReset(*partition, committed, after, clamped=after != wanted)
