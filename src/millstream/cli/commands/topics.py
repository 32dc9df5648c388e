"""``millstream topic``: create, list, describe, add-partitions, delete and config."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import completion, options
from millstream.cli.properties import read_properties
from millstream.errors import InvalidConfigError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from millstream.suggestions import did_you_mean
from millstream.terminal.outcome import CommandError, UsageError, told_by
from millstream.terminal.output import count, print_fields, print_json, print_lines, print_table, size

if TYPE_CHECKING:
    from millstream.admin import Admin, ConfigEntry, TopicDescription

NewName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Name = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=completion.topics)
]
Names = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="One topic or more.", autocompletion=completion.topics)
]


def topic() -> None:
    """Create, list, describe, change and delete topics.

    [bold]Examples[/bold]

      millstream topic create orders --partitions 4
      millstream topic list
      millstream topic describe orders
      millstream topic config orders --set retention.ms=86400000
    """


def create(
    name: NewName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            min=1,
            show_default="the broker's num.partitions",
            help="How many consumers of a group can share it.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, show_default="the broker's", help="How many brokers keep a copy."),
    ] = None,
    configs: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A setting of the topic; repeat it for more."),
    ] = None,
    if_not_exists: Annotated[
        bool,
        typer.Option("--if-not-exists", metavar="", help="An existing topic is fine, and left as it is."),
    ] = False,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Create a topic.

    [bold]Examples[/bold]

      millstream topic create orders --partitions 4
      millstream topic create prices --config cleanup.policy=compact
      millstream topic create orders --if-not-exists
    """
    settings = read_properties(configs or (), "--config")
    with _admin(servers) as admin, _hints_for_settings("'millstream topic config' of any topic shows all"):
        try:
            made = admin.create_topic(
                name, partitions or -1, replication_factor or -1, settings, exist_ok=if_not_exists
            )
        except TopicAlreadyExistsError:
            raise CommandError(
                f"topic {name} exists already: choose another name, or leave it as it is with --if-not-exists"
            ) from None
        there = admin.describe_topic(name)
    if as_json:
        print_json({"name": name, "created": made is not None, "partitions": len(there.partitions)})
    elif made is None:
        print(f"topic {name} exists already, with {count(len(there.partitions), 'partition')}")
    else:
        print(f"created topic {name} with {count(len(there.partitions), 'partition')}")


def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", metavar="", help="Also Kafka's own, such as __consumer_offsets.")
    ] = False,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """List the topics by name.

    [bold]Examples[/bold]

      millstream topic list
      millstream topic list --internal --json
    """
    with _admin(servers) as admin:
        topics = _all_topics(admin, internal)
    if as_json:
        print_json([{"name": name, "partitions": len(one.partitions)} for name, one in topics.items()])
    else:
        rows = [(name, len(one.partitions)) for name, one in topics.items()]
        print_lines(
            ("topic", "partitions"), rows, none="there are no topics yet: 'millstream topic create NAME'"
        )


def _all_topics(admin: Admin, internal: bool) -> dict[str, TopicDescription]:
    """All topics there are. One that is deleted between two questions is asked for no more."""
    for tries_left in reversed(range(10)):
        names = admin.list_topics(internal=internal)
        try:
            return admin.describe_topics(names) if names else {}
        except UnknownTopicOrPartitionError:
            if not tries_left:
                raise
    raise AssertionError("the last try has returned or raised")


def describe(
    names: Names,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Show partitions, offsets, sizes and settings of topics.

    Settings are shown where the topic has its own; millstream topic config shows all.

    [bold]Examples[/bold]

      millstream topic describe orders
      millstream topic describe orders payments --json
    """
    from millstream.cli.errors.names import hints_for_topics

    with _admin(servers) as admin, hints_for_topics(admin, names):
        found = [_look_at(admin, topic) for topic in admin.describe_topics(names).values()]
    if as_json:
        print_json(found)
        return
    for place, one in enumerate(found):
        if place:
            print()
        _print_topic(one)


def _look_at(admin: Admin, topic: TopicDescription) -> dict[str, Any]:
    """Everything about one topic, as plain values."""
    first = admin.list_offsets(topic.name, "earliest")
    end = admin.list_offsets(topic.name, "latest")
    sizes = _sizes(admin, topic.name)
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
                "bytes": sizes.get(one.partition),
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


def _sizes(admin: Admin, topic: str) -> dict[int, int]:
    """The bytes of each partition on the disk of a broker; none where brokers do not tell."""
    from millstream.errors import BrokerError

    try:
        directories = admin.describe_log_dirs()
    except BrokerError:
        return {}
    found: dict[int, int] = {}
    for replica in (replica for directory in directories for replica in directory.replicas):
        if replica.topic == topic and not replica.is_future:
            found[replica.partition] = max(replica.size_bytes, found.get(replica.partition, 0))
    return found


def _print_topic(topic: dict[str, Any]) -> None:
    configs = ", ".join(f"{name}={value}" for name, value in topic["configs"].items())
    print_fields(
        {
            "topic": topic["name"],
            "id": topic["topic_id"],
            "replication": topic["replication_factor"],
            "settings": configs or "all as the broker has them",
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
    name: Name,
    total: Annotated[
        int | None, typer.Argument(metavar="TOTAL", min=1, help="How many it shall have then.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", metavar="TOTAL", min=1, help="The same, as an option.")
    ] = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Let a topic grow to TOTAL partitions.

    Records stay where they are, and running groups share the new partitions out. A key may lie in another
    partition from then on: records of one key are in order only within each.

    [bold]Examples[/bold]

      millstream topic add-partitions orders 8
      millstream topic add-partitions orders --partitions 8
    """
    if (total is None) == (partitions is None):
        raise UsageError(
            "say once how many partitions there shall be: millstream topic add-partitions TOPIC TOTAL"
        )
    wanted = total or partitions
    from millstream.cli.errors.names import hints_for_topics

    with _admin(servers) as admin, hints_for_topics(admin, [name]):
        admin.create_partitions(name, wanted)
    if as_json:
        print_json({"name": name, "partitions": wanted})
    else:
        print(f"topic {name} has {count(wanted or 0, 'partition')} now")


def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", metavar="", help="A topic that is not there is fine.")
    ] = False,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Delete topics with all their records. This cannot be undone.

    [bold]Examples[/bold]

      millstream topic delete old-orders
      millstream topic delete a b c --if-exists
    """
    from millstream.cli.errors.names import hints_for_topics

    otherwise = "see 'millstream topic list'; with --if-exists it is no error"
    with _admin(servers) as admin, hints_for_topics(admin, names, otherwise):
        known = set(admin.list_topics(internal=True))
        admin.delete_topics(names, missing_ok=if_exists)
    deleted = [name for name in dict.fromkeys(names) if name in known]
    if as_json:
        print_json({"deleted": deleted})
    else:
        for name in deleted:
            print(f"deleted topic {name}")


def config(
    name: Name,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change a setting; repeat it for more."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Back to the broker's own; repeat it for more."),
    ] = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Show the settings of a topic, or change some.

    Changes take effect at once, and survive a restart.

    [bold]Examples[/bold]

      millstream topic config orders
      millstream topic config orders --set retention.ms=86400000
      millstream topic config orders --unset retention.ms
    """
    from millstream.cli.errors.names import hints_for_topics

    wanted: dict[str, object] = dict(read_properties(changes or (), "--set"))
    for removed in unset or ():
        if removed in wanted:
            raise UsageError(f"{removed} is both set and unset: leave one out")
        wanted[removed] = None
    with (
        _admin(servers) as admin,
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
    _print_configs(entries, as_json)


@contextmanager
def _hints_for_settings(otherwise: str) -> Iterator[None]:
    """Say where the settings are, after a broker that does not know one, nor any like it."""
    try:
        yield
    except InvalidConfigError as error:
        text = told_by(error)
        if "unknown topic" not in text.lower() or "did you mean" in text:
            raise
        raise CommandError(f"{text}: {otherwise}") from error


def _require_settings(names: list[str], known: Collection[str]) -> None:
    """Raise for what is no setting of a topic: to take it back is no error for a broker."""
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


def _admin(servers: str) -> Admin:
    from millstream.cli.clients import open_admin

    return open_admin(servers)
