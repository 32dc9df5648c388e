"""What the handlers share: the groups, their deadlines, the store, and how to write to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from millstream.broker.groups.metrics import GroupCounters
from millstream.broker.groups.outcome import Continuation, Effects
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.members import Member
from millstream.broker.groups.state.records import GroupRecord, OffsetRecord
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.store import Store
from millstream.broker.groups.state.timers import Timers
from millstream.errors import ErrorCode
from millstream.model import TopicPartition


class TimerKind(Enum):
    """What a deadline is for."""

    SESSION = auto()
    """A member, or a pending member id, times out."""
    JOIN = auto()
    """The join phase ends with the members that have joined."""
    SYNC = auto()
    """Members that have not synced are dropped."""
    RETENTION = auto()
    """Expired offsets are looked for."""


class TimerKey(NamedTuple):
    """A kind of deadline, of a group or of a member."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


RETENTION_TIMER: Final = TimerKey(TimerKind.RETENTION)


def join_timer(group: ClassicGroup) -> TimerKey:
    """Return the key of the end of the group's join phase."""
    return TimerKey(TimerKind.JOIN, group.group_id)


def sync_timer(group: ClassicGroup) -> TimerKey:
    """Return the key of the deadline for all members to sync."""
    return TimerKey(TimerKind.SYNC, group.group_id)


def session_timer(group: ClassicGroup, member_id: str) -> TimerKey:
    """Return the key of the session of a member or of a pending member id."""
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


class TopicIds(Protocol):
    """The ids of the broker's topics, by which newer requests name them."""

    def name_of(self, topic_id: bytes) -> str | None: ...

    def id_of(self, name: str) -> bytes | None: ...


class NoTopicIds:
    """For a coordinator that only ever gets names."""

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def id_of(self, name: str) -> bytes | None:
        return None


class GroupTable:
    """The coordinator's state."""

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        partition_exists: Callable[[TopicPartition], bool],
        topic_ids: TopicIds,
    ) -> None:
        self.settings = settings
        self.new_id = new_id
        self.partition_exists = partition_exists
        self.topic_ids = topic_ids
        self.store = Store()
        self.groups: dict[str, ClassicGroup] = {}
        self.timers: Timers[TimerKey] = Timers()
        self.counters = GroupCounters()

    def find_or_create(self, group_id: str) -> ClassicGroup:
        """Return the group, which is created by its first join or commit, even if that is refused.

        A group that stays empty is removed at the next check for expired offsets.
        """
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group

    def remove(self, group: ClassicGroup, effects: Effects) -> None:
        """Remove an empty group from the table."""
        assert not group.members
        for member_id in group.pending:
            self.timers.cancel(session_timer(group, member_id))
        group.pending.clear()
        group.enter(GroupState.DEAD, effects.moment.epoch_ms)
        self.groups.pop(group.group_id, None)

    def write(
        self, group: ClassicGroup, records: Sequence[GroupRecord], effects: Effects, then: Continuation
    ) -> None:
        """Write records of one group; ``then`` is called when they are applied or have failed."""
        partitions = [record.partition for record in records if isinstance(record, OffsetRecord)]
        group.writes_in_flight.append(effects.token)
        group.uncommitted.update(partitions)

        def settle(error: int, later: Effects) -> None:
            group.writes_in_flight.remove(effects.token)
            group.settle_offsets(partitions)
            then(error, later)
            if error and group.is_idle and not self.store.knows(group.group_id):
                self.remove(group, later)  # it was created for this write, which failed

        effects.write(records, settle)

    def keep_session(
        self, group: ClassicGroup, member: Member, effects: Effects, timeout_ms: int | None = None
    ) -> None:
        """Restart the member's session."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.set(session_timer(group, member.member_id), effects.moment.now_ms + timeout_ms)

    def caller_error(
        self, group: ClassicGroup | None, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Return why a caller is not a member of this generation: what syncs and heartbeats check first."""
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.closing:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.member_error(member_id, instance_id)
        if error is ErrorCode.NONE and generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error
