"""``millstream group``: list, describe, reset, delete and remove-members."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli import completion
from millstream.cli.clients import open_admin
from millstream.cli.errors.names import hints_for_a_new_group, hints_for_groups, hints_for_topics
from millstream.cli.options import Commands, Common, Group, Groups, repeated
from millstream.cli.positions import (
    AtOffset,
    AtTime,
    BeforeEnd,
    End,
    GroupPosition,
    Shift,
    read_group_position,
)
from millstream.errors import GroupIdNotFoundError
from millstream.model import TopicPartition
from millstream.terminal.outcome import UsageError, warn
from millstream.terminal.output import print_deleted, print_json, print_lines, print_table

if TYPE_CHECKING:
    from millstream.admin import Admin, OffsetReset

STATES: Final = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead")
"""Of classic groups."""


def group() -> None:
    """List, describe, move and delete consumer groups.

    [bold]Examples[/bold]

      millstream group list
      millstream group describe audit
      millstream group reset audit --to earliest --dry-run
    """


def list_groups(
    common: Common,
    state: Annotated[
        list[str] | None,
        repeated(
            "--state",
            metavar="STATE",
            help="Only groups in this state, such as Stable or Empty",
            autocompletion=completion.words(*STATES),
        ),
    ] = None,
) -> None:
    """List the groups and their states.

    [bold]Examples[/bold]

      millstream group list
      millstream group list --state Stable --state Empty
    """
    states = [_state(text) for text in state or ()]
    with open_admin(common.servers) as admin:
        groups = admin.list_groups(states or None)
    if common.as_json:
        print_json(
            [
                {
                    "group": one.group_id,
                    "state": one.state,
                    "protocol_type": one.protocol_type,
                    "type": one.type,
                }
                for one in groups
            ]
        )
        return
    rows = [(one.group_id, one.state) for one in groups]
    print_lines(
        ("group", "state"), rows, none="there are no groups: one appears when a consumer joins or commits"
    )


def _state(text: str) -> str:
    """A state in Kafka's spelling, whatever capitals were typed."""
    for state in STATES:
        if state.casefold() == text.casefold():
            return state
    raise UsageError(f"--state {text!r} is unknown: choose {', '.join(STATES[:-1])} or {STATES[-1]}")


def describe(
    names: Groups,
    common: Common,
    watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep the display up to date, with rates.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often --watch updates.")
    ] = 2.0,
) -> None:
    """Show the members, partitions and lag of groups.

    The lag of a partition is how many records the group has not committed yet.

    [bold]Examples[/bold]

      millstream group describe audit
      millstream group describe audit --watch
      millstream group describe audit --json | jq '.[0].lag'
    """
    from millstream.cli.group_view import print_groups, watch
    from millstream.terminal.group_values import group_values

    with open_admin(common.servers) as admin, hints_for_groups(admin, names):

        def look() -> list[dict[str, Any]]:
            return [group_values(group) for group in admin.describe_groups(names).values()]

        if watching:
            watch(look, interval, as_json=common.as_json)
        elif common.as_json:
            print_json(look())
        else:
            print_groups(look())


def reset(
    name: Group,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="earliest, latest, an offset, -N (before the end), a time, an age such as 15m, or shift:±N.",
            autocompletion=completion.words("earliest", "latest", "shift:-", "offset:", "time:"),
        ),
    ],
    common: Common,
    topics: Annotated[
        list[str] | None,
        repeated(
            "--topic",
            metavar="TOPIC",
            help="Only this topic, or TOPIC:0,2 for some partitions",
            show_default="all topics of the group",
            autocompletion=completion.topics,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show before and after, and change nothing.")
    ] = False,
) -> None:
    """Move a group to another position in its topics.

    Stop the group's members first; they continue from there when they start again. An offset outside a
    partition becomes its first or its end offset.

    [bold]Examples[/bold]

      millstream group reset audit --to earliest --dry-run
      millstream group reset audit --to 2026-01-31T12:00 --topic orders
      millstream group reset audit --to shift:-100
      millstream group reset audit --to 4711 --topic orders:0
    """
    position = read_group_position(to, "--to", time.time_ns() // 1_000_000)
    wanted = None if not topics else [one for text in topics for one in read_partitions(text)]
    named = [one if isinstance(one, str) else one.topic for one in wanted or ()]
    with (
        open_admin(common.servers) as admin,
        hints_for_topics(admin, named),
        hints_for_a_new_group(admin, name),
    ):
        resets = list(_reset(admin, name, position, wanted, dry_run).values())
        if dry_run:
            _warn_of_members(admin, name)
    _print_resets(resets, as_json=common.as_json, dry_run=dry_run)


def read_partitions(text: str) -> list[str | TopicPartition]:
    """Read ``TOPIC``, or ``TOPIC:0,2`` for some of its partitions. A topic's name has no colon."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return [topic]
    try:
        return [TopicPartition(topic, _partition(number)) for number in numbers.split(",")]
    except ValueError:
        raise UsageError(f"--topic {text!r} is not TOPIC, nor TOPIC:0,2 with partitions") from None


def _partition(text: str) -> int:
    partition = int(text)
    if partition < 0:
        raise ValueError(text)
    return partition


def _reset(
    admin: Admin,
    group: str,
    position: GroupPosition,
    topics: list[str | TopicPartition] | None,
    dry_run: bool,
) -> dict[TopicPartition, OffsetReset]:
    match position:
        case End():
            return admin.reset_offsets(group, position.value, topics=topics, dry_run=dry_run)
        case AtOffset(offset):
            return admin.reset_offsets(group, offset=offset, topics=topics, dry_run=dry_run)
        case AtTime(timestamp_ms):
            return admin.reset_offsets(group, timestamp_ms, topics=topics, dry_run=dry_run)
        case Shift(by):
            return admin.reset_offsets(group, shift=by, topics=topics, dry_run=dry_run)
        case BeforeEnd(number):
            ends = admin.reset_offsets(group, "latest", topics=topics, dry_run=True)
            offsets = {partition: max(0, end.after - number) for partition, end in ends.items()}
            return admin.reset_offsets(group, offsets=offsets, dry_run=dry_run)


def _warn_of_members(admin: Admin, group: str) -> None:
    """Warn of members, for which a reset would be refused. A new group has none."""
    with suppress(GroupIdNotFoundError):
        clients = sorted({member.client_id for member in admin.describe_group(group, lag=False).members})
        if clients:
            warn(
                f"group {group} has members ({', '.join(clients)}): stop them before you leave out --dry-run"
            )


def _print_resets(resets: list[OffsetReset], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        print_json([{**asdict(one), "dry_run": dry_run} for one in resets])
        return
    rows = [
        (one.topic, one.partition, one.before, one.after, "the nearest there is" if one.clamped else None)
        for one in resets
    ]
    print_table(("topic", "partition", "before", "after", "note"), rows)
    if dry_run:
        print("nothing was changed: leave out --dry-run to do it")


def delete(names: Groups, common: Common) -> None:
    """Delete groups with their committed offsets. Stop their members first.

    [bold]Examples[/bold]

      millstream group delete audit
      millstream group delete audit billing --json
    """
    with open_admin(common.servers) as admin, hints_for_groups(admin, names):
        admin.delete_groups(names)
    print_deleted("group", names, as_json=common.as_json)


def remove_members(
    name: Group,
    common: Common,
    instance_ids: Annotated[
        list[str] | None, repeated("--instance-id", metavar="ID", help="The static member with this id")
    ] = None,
    member_ids: Annotated[
        list[str] | None, repeated("--member-id", metavar="ID", help="The member with this id")
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All members.")] = False,
) -> None:
    """Remove members from a group, so that others get their partitions at once.

    For a static member that will not come back. A member that still runs joins again.

    [bold]Examples[/bold]

      millstream group remove-members audit --instance-id host-7
      millstream group remove-members audit --all
    """
    if everyone == bool(instance_ids or member_ids):
        raise UsageError("which members: give --instance-id, --member-id or --all")
    with open_admin(common.servers) as admin, hints_for_groups(admin, [name]):
        removed = admin.remove_members(
            name,
            instance_ids=None if everyone else instance_ids or (),
            member_ids=None if everyone else member_ids or (),
        )
    if common.as_json:
        print_json({"group": name, "removed": removed})
    else:
        print_lines(("removed",), [(each,) for each in removed], none=f"group {name} has no members")


COMMANDS: Final[Commands] = {
    "list": list_groups,
    "describe": describe,
    "reset": reset,
    "delete": delete,
    "remove-members": remove_members,
}
