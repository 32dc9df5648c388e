"""``millstream topic``: create, list, describe, add-partitions, delete and config."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.clients import open_admin
from millstream.cli.errors.names import hints_for_topics
from millstream.cli.options import Commands, Common, NewTopic, Topic, Topics, repeated
from millstream.cli.properties import read_properties
from millstream.errors import InvalidConfigError, TopicAlreadyExistsError
from millstream.suggestions import did_you_mean
from millstream.terminal.outcome import CommandError, UsageError, told_by
from millstream.terminal.output import (
    count,
    print_deleted,
    print_fields,
    print_json,
    print_lines,
    print_table,
    size,
)
from millstream.terminal.topic_reads import describe_all_topics, partition_sizes

if TYPE_CHECKING:
    from millstream.admin import Admin, ConfigEntry, TopicDescription


def topic() -> None:
    """Create, list, describe, change and delete topics.

    [bold]Examples[/bold]

      millstream topic create orders --partitions 4
      millstream topic list
      millstream topic describe orders
      millstream topic config orders --set retention.ms=86400000
    """


def create(
    name: NewTopic,
    common: Common,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            min=1,
            show_default="the broker's num.partitions",
            help="At most as many consumers of a group share the topic.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, show_default="the broker's", help="How many brokers keep a copy."),
    ] = None,
    configs: Annotated[
        list[str] | None, repeated("--config", metavar="NAME=VALUE", help="A setting of the topic")
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic that exists as it is, without an error.")
    ] = False,
) -> None:
    """Create a topic.

    [bold]Examples[/bold]

      millstream topic create orders --partitions 4
      millstream topic create prices --config cleanup.policy=compact
      millstream topic create orders --if-not-exists
    """
    settings = read_properties(configs or (), "--config")
    with (
        open_admin(common.servers) as admin,
        _hints_for_settings("'millstream topic config' of any topic shows all"),
    ):
        try:
            made = admin.create_topic(
                name, partitions or -1, replication_factor or -1, settings, exist_ok=if_not_exists
            )
        except TopicAlreadyExistsError:
            raise CommandError(
                f"topic {name} exists already: choose another name, or leave it as it is with --if-not-exists"
            ) from None
        there = admin.describe_topic(name)
    if common.as_json:
        print_json({"name": name, "created": made is not None, "partitions": len(there.partitions)})
    elif made is None:
        print(f"topic {name} exists already, with {count(len(there.partitions), 'partition')}")
    else:
        print(f"created topic {name} with {count(len(there.partitions), 'partition')}")


def list_topics(
    common: Common,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also Kafka's own, such as __consumer_offsets.")
    ] = False,
) -> None:
    """List the topics by name.

    [bold]Examples[/bold]

      millstream topic list
      millstream topic list --internal --json
    """
    with open_admin(common.servers) as admin:
        topics = describe_all_topics(admin, internal=internal)
    if common.as_json:
        print_json([{"name": name, "partitions": len(one.partitions)} for name, one in topics.items()])
    else:
        rows = [(name, len(one.partitions)) for name, one in topics.items()]
        print_lines(
            ("topic", "partitions"), rows, none="there are no topics yet: 'millstream topic create NAME'"
        )


def describe(names: Topics, common: Common) -> None:
    """Show partitions, offsets, sizes and settings of topics.

    Only settings that the topic overrides are shown; millstream topic config shows all.

    [bold]Examples[/bold]

      millstream topic describe orders
      millstream topic describe orders payments --json
    """
    with open_admin(common.servers) as admin, hints_for_topics(admin, names):
        found = [_values(admin, topic) for topic in admin.describe_topics(names).values()]
    if common.as_json:
        print_json(found)
        return
    for place, one in enumerate(found):
        if place:
            print()
        _print_topic(one)


def _values(admin: Admin, topic: TopicDescription) -> dict[str, Any]:
    """Everything about one topic, as plain values."""
    first = admin.list_offsets(topic.name, "earliest")
    end = admin.list_offsets(topic.name, "latest")
    sizes = partition_sizes(admin)
    configs = admin.topic_configs(topic.name)
    partitions = []
    for one in topic.partitions:
        start, stop = first[one.topic_partition], end[one.topic_partition]
        partitions.append(
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "first_offset": None if start is None else start.offset,
                "end_offset": None if stop is None else stop.offset,
                "bytes": sizes.get(one.topic_partition),
            }
        )
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "replication_factor": topic.replication_factor,
        "partitions": partitions,
        "configs": {name: entry.value for name, entry in configs.items() if entry.source == "topic"},
    }


def _print_topic(topic: dict[str, Any]) -> None:
    configs = ", ".join(f"{name}={value}" for name, value in topic["configs"].items())
    print_fields(
        {
            "topic": topic["name"],
            "id": topic["topic_id"],
            "replication": topic["replication_factor"],
            "settings": configs or "all from the broker",
        }
    )
    print()
    columns = ("partition", "leader", "first offset", "end offset", "size")
    rows = [
        (
            one["partition"],
            one["leader"],
            one["first_offset"],
            one["end_offset"],
            None if one["bytes"] is None else size(one["bytes"]),
        )
        for one in topic["partitions"]
    ]
    print_table(columns, rows)


def add_partitions(
    name: Topic,
    common: Common,
    total: Annotated[
        int | None, typer.Argument(metavar="TOTAL", min=1, help="The number of partitions afterwards.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", metavar="TOTAL", min=1, help="The same, as an option.")
    ] = None,
) -> None:
    """Increase a topic to TOTAL partitions.

    Existing records stay where they are, and running groups take up the new partitions. New records of a key
    may go to another partition than before: they are in order only within each partition.

    [bold]Examples[/bold]

      millstream topic add-partitions orders 8
      millstream topic add-partitions orders --partitions 8
    """
    if (total is None) == (partitions is None):
        raise UsageError("give the number of partitions once: millstream topic add-partitions TOPIC TOTAL")
    wanted = total or partitions
    with open_admin(common.servers) as admin, hints_for_topics(admin, [name]):
        admin.create_partitions(name, wanted)
    if common.as_json:
        print_json({"name": name, "partitions": wanted})
    else:
        print(f"topic {name} has {count(wanted or 0, 'partition')} now")


def delete(
    names: Topics,
    common: Common,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Skip a topic that does not exist, without an error.")
    ] = False,
) -> None:
    """Delete topics with all their records. This cannot be undone.

    [bold]Examples[/bold]

      millstream topic delete old-orders
      millstream topic delete a b c --if-exists
    """
    otherwise = "see 'millstream topic list', or add --if-exists to skip missing topics"
    with open_admin(common.servers) as admin, hints_for_topics(admin, names, otherwise):
        known = set(admin.list_topics(internal=True))
        admin.delete_topics(names, missing_ok=if_exists)
    print_deleted("topic", [name for name in names if name in known], as_json=common.as_json)


def config(
    name: Topic,
    common: Common,
    changes: Annotated[
        list[str] | None, repeated("--set", metavar="NAME=VALUE", help="Change a setting")
    ] = None,
    unset: Annotated[
        list[str] | None, repeated("--unset", metavar="NAME", help="Return to the broker's value")
    ] = None,
) -> None:
    """Show the settings of a topic, or change some.

    Changes take effect at once, and survive a restart.

    [bold]Examples[/bold]

      millstream topic config orders
      millstream topic config orders --set retention.ms=86400000
      millstream topic config orders --unset retention.ms
    """
    wanted: dict[str, object] = dict(read_properties(changes or (), "--set"))
    for removed in unset or ():
        if removed in wanted:
            raise UsageError(f"{removed} is both set and unset: leave one out")
        wanted[removed] = None
    with (
        open_admin(common.servers) as admin,
        hints_for_topics(admin, [name]),
        _hints_for_settings("leave out --set to see all"),
    ):
        if unset:
            _require_settings(unset, admin.topic_configs(name))
        if wanted:
            admin.alter_configs(name, wanted)
        entries = admin.topic_configs(name)
    if wanted:
        entries = {key: entry for key, entry in entries.items() if key in wanted}
    _print_configs(entries, common.as_json)


@contextmanager
def _hints_for_settings(otherwise: str) -> Iterator[None]:
    """Add where to find the settings to the error of a broker that knows no similar one."""
    try:
        yield
    except InvalidConfigError as error:
        text = told_by(error)
        if "unknown topic" not in text.lower() or "did you mean" in text:
            raise
        raise CommandError(f"{text}: {otherwise}") from error


def _require_settings(names: list[str], known: Collection[str]) -> None:
    """Raise for an unknown topic setting: brokers accept removing it."""
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or "leave out --unset to see all"
            raise CommandError(f"unknown topic setting {name}: {hint}")


def _print_configs(entries: dict[str, ConfigEntry], as_json: bool) -> None:
    ordered = sorted(entries.items())
    if as_json:
        print_json({key: {"value": entry.value, "source": entry.source} for key, entry in ordered})
    else:
        print_table(
            ("setting", "value", "from"), [(key, entry.value, entry.source) for key, entry in ordered]
        )


COMMANDS: Final[Commands] = {
    "create": create,
    "list": list_topics,
    "describe": describe,
    "add-partitions": add_partitions,
    "delete": delete,
    "config": config,
}
