"""Moving groups to another place in their topics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from millstream.admin.committed import Partitions, non_empty
from millstream.admin.groups import GroupAdmin
from millstream.admin.offsets import OffsetSpec, offset_or, timestamp_of
from millstream.admin.values import OffsetReset
from millstream.client.blocking import Deadline
from millstream.errors import GroupIdNotFoundError, MisuseError
from millstream.model import RESET_METADATA, OffsetAndMetadata, TopicPartition


class ResetAdmin(GroupAdmin):
    """The call that moves groups."""

    def reset_offsets(
        self,
        group: str,
        to: OffsetSpec | timedelta | None = None,
        *,
        offset: int | None = None,
        shift: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        topics: str | Partitions | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Move a group to another place, which its members take up when they start next.

        One of: ``to`` (``earliest``, ``latest``, a datetime or milliseconds since 1970, or a timedelta for so
        long ago), ``offset`` (the same in each partition), ``shift`` (so many records on, or back),
        ``offsets`` (each its own). ``topics`` are topics or partitions; without them, all that the group has
        committed. An offset that a log does not have becomes its beginning or end; where nothing is as late
        as the time, the end.

        The group must have no members (NonEmptyGroupError). ``dry_run`` changes nothing. Returns what each
        partition was and is, or would be.
        """
        if sum(given is not None for given in (to, offset, shift, offsets)) != 1:
            raise MisuseError("say where to go: give one of to, offset, shift and offsets")
        deadline = self._deadline(timeout)
        before = self._committed(group, None, deadline)
        if offsets is not None:
            wanted = [TopicPartition(*partition) for partition in offsets]
        else:
            wanted = self._to_be_reset(group, topics, before, deadline)
        if not dry_run:
            self._require_no_members(group, deadline)
        bounds = self._bounds(wanted, deadline)
        after = self._destinations(to, offset, shift, offsets, before, bounds, deadline)
        resets = {one: _reset(one, before.get(one), after[one], bounds[one]) for one in sorted(wanted)}
        if not dry_run:
            moved = {one: OffsetAndMetadata(reset.after, RESET_METADATA) for one, reset in resets.items()}
            self._commit(group, moved, deadline)
        return resets

    def _to_be_reset(
        self,
        group: str,
        topics: str | Partitions | None,
        before: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> list[TopicPartition]:
        if topics is not None:
            return self._partitions(topics, deadline)
        if not before:
            raise GroupIdNotFoundError(f"group {group} has committed nothing: name the topics to set it to")
        cluster = self._calls.refresh_metadata({topic for topic, _ in before}, deadline)
        there = [topic for topic in {topic for topic, _ in before} if topic in cluster.topics]
        return self._all_partitions(there, deadline)

    def _require_no_members(self, group: str, deadline: Deadline) -> None:
        try:
            described = self.describe_group(group, lag=False, timeout=deadline.remaining_s)
        except GroupIdNotFoundError:
            return
        if described.members:
            raise non_empty(group, [member.client_id for member in described.members])

    def _destinations(
        self,
        to: OffsetSpec | timedelta | None,
        offset: int | None,
        shift: int | None,
        offsets: Mapping[TopicPartition, int] | None,
        before: Mapping[TopicPartition, OffsetAndMetadata],
        bounds: Mapping[TopicPartition, tuple[int, int]],
        deadline: Deadline,
    ) -> dict[TopicPartition, int]:
        """Where each partition goes, before it is brought inside its log."""
        if offsets is not None:
            return {TopicPartition(*one): value for one, value in offsets.items()}
        if offset is not None:
            return dict.fromkeys(bounds, offset)
        if shift is not None:
            # Where nothing was committed there is nothing to count from but the log's own beginning.
            return {
                one: (before[one].offset if one in before else start) + shift
                for one, (start, _) in bounds.items()
            }
        if isinstance(to, timedelta):
            to = datetime.now(UTC) - to
        assert to is not None, "one way to say where to go is given"
        found = self._list_offsets(dict.fromkeys(bounds, timestamp_of(to)), deadline)
        return {one: offset_or(found[one], end) for one, (_, end) in bounds.items()}


def _reset(
    partition: TopicPartition, before: OffsetAndMetadata | None, wanted: int, bounds: tuple[int, int]
) -> OffsetReset:
    start, end = bounds
    after = min(max(wanted, start), end)
    return OffsetReset(
        partition.topic,
        partition.partition,
        None if before is None else before.offset,
        after,
        clamped=after != wanted,
    )
