"""What the console answers: plain values, ready for JSON, of which the pages are made as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from millstream.admin import ConfigEntry
from millstream.console.loads import LoadLook, TableLook
from millstream.console.looking import GroupLook, PartitionLook, Snapshot, TopicLook
from millstream.console.views.sampling import Outlook, Pace, Point, Rates, outlook
from millstream.model import TopicPartition
from millstream.suggestions import nearest
from millstream.terminal.group_values import group_values

Values = dict[str, Any]

_MOST_NEAR: Final = 3


class NotThereError(Exception):
    """There is no such topic, group or partition. ``near``: names that are nearly the same."""

    def __init__(self, what: str, name: str, near: Sequence[str] = ()) -> None:
        super().__init__(f"There is no {what} {name!r}.")
        self.what = what
        self.near = list(near)


def find_topic(snapshot: Snapshot, name: str) -> TopicLook:
    """A topic by its name."""
    if name not in snapshot.topics:
        raise NotThereError("topic", name, nearest(name, snapshot.topics, count=_MOST_NEAR, cutoff=0.5))
    return snapshot.topics[name]


def find_group(snapshot: Snapshot, name: str) -> GroupLook:
    """A group by its name."""
    if name not in snapshot.groups:
        raise NotThereError("group", name, nearest(name, snapshot.groups, count=_MOST_NEAR, cutoff=0.5))
    return snapshot.groups[name]


def find_partition(topic: TopicLook, partition: int) -> PartitionLook:
    """A partition by its number."""
    for one in topic.partitions:
        if one.partition == partition:
            return one
    raise NotThereError("partition", f"{topic.name}-{partition}")


def cluster(snapshot: Snapshot, servers: str) -> Values:
    """The cluster as a whole."""
    found = snapshot.cluster
    return {
        "address": servers,
        "cluster_id": found.cluster_id,
        "controller": None if found.controller is None else found.controller.node_id,
        "brokers": [
            {"id": one.node_id, "host": one.host, "port": one.port, "rack": one.rack} for one in found.brokers
        ],
    }


def totals(snapshot: Snapshot, rates: Rates) -> Values:
    """Sums over everything but Kafka's own topics."""
    topics = [topic for topic in snapshot.topics.values() if not topic.internal]
    known = [rates.topics[topic.name] for topic in topics if topic.name in rates.topics]
    return {
        "brokers": len(snapshot.cluster.brokers),
        "topics": len(topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "records": sum(topic.records or 0 for topic in topics),
        "bytes": sum(topic.size_bytes or 0 for topic in topics),
        "produced_per_s": _rounded(sum(known)) if known else None,
        "groups": len(snapshot.groups),
        "lag": sum(group.lag or 0 for group in snapshot.groups.values()),
    }


def topic_row(topic: TopicLook, rates: Rates) -> Values:
    """A topic in a list."""
    return {
        "name": topic.name,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "records": topic.records,
        "bytes": topic.size_bytes,
        "produced_per_s": _rounded(rates.topics.get(topic.name)),
    }


def group_row(group: GroupLook, rates: Rates) -> Values:
    """A group in a list."""
    pace = rates.groups.get(group.name, Pace())
    return {
        "group": group.name,
        "state": group.description.state,
        "members": len(group.description.members),
        "topics": group.topics,
        "lag": group.lag,
        "note": group.note,
        **_pace_values(pace),
        **_outlook_values(outlook(group.lag, pace)),
    }


def topic_page(
    topic: TopicLook, snapshot: Snapshot, rates: Rates, configs: Mapping[str, ConfigEntry]
) -> Values:
    """Everything about a topic but its records, named as in ``millstream topic describe --json``."""
    partitions = [
        {
            "partition": one.partition,
            "leader": one.leader,
            "replicas": list(one.replicas),
            "first_offset": one.start,
            "end_offset": one.end,
            "records": one.records,
            "bytes": one.size_bytes,
            "produced_per_s": _rounded(rates.produced.get(TopicPartition(topic.name, one.partition))),
        }
        for one in topic.partitions
    ]
    return {
        **topic_row(topic, rates),
        "topic_id": topic.topic_id,
        "partitions": partitions,
        "groups": [
            _reader(group, topic.name, rates)
            for group in snapshot.groups.values()
            if topic.name in group.topics
        ],
        "configs": [
            {"name": entry.name, "value": entry.value, "source": entry.source, "own": entry.source == "topic"}
            for entry in sorted(configs.values(), key=lambda entry: (entry.source != "topic", entry.name))
        ],
    }


def _reader(group: GroupLook, topic: str, rates: Rates) -> Values:
    """A group, as far as it reads one topic."""
    here = [one for one in group.description.partitions if one.topic == topic]
    lags = [one.lag for one in here if one.lag is not None]
    moved = rates.committed.get(group.name, {})
    paces = [moved[place] for one in here if (place := TopicPartition(topic, one.partition)) in moved]
    return {
        "group": group.name,
        "state": group.description.state,
        "members": len({one.member.member_id for one in here if one.member is not None}),
        "lag": sum(lags) if lags else None,
        "committed_per_s": _rounded(sum(paces)) if paces else None,
    }


def group_page(group: GroupLook, rates: Rates, points: Sequence[Point], now_ms: int) -> Values:
    """Everything about a group, named as in ``millstream group describe --json``."""
    values = group_values(group.description)
    for one in values["partitions"]:
        pace = rates.partition(group.name, TopicPartition(one["topic"], one["partition"]))
        one.update(_pace_values(pace))
    pace = rates.groups.get(group.name, Pace())
    return {
        **values,
        "topics": group.topics,
        "lag": group.lag,
        "note": group.note,
        **_pace_values(pace),
        **_outlook_values(outlook(group.lag, pace)),
        "lag_history": [
            {"seconds_ago": round((now_ms - point.at_ms) / 1000, 1), "lag": point.lag} for point in points
        ],
    }


def load_rows(loads: Sequence[LoadLook], tables: Sequence[TableLook], snapshot: Snapshot) -> list[Values]:
    """Loads with what their tables say, where these were named; then named tables that no load goes into."""
    told = {(status["group"], table.table): status for table in tables for status in table.statuses}
    groups_told = {status["group"]: status for status in told.values()}
    notes = {table.table: table.note for table in tables if table.note}
    rows = []
    for load in loads:
        group = snapshot.groups[load.group].description
        rows.append(
            {
                "group": load.group,
                "table": load.table,
                "topics": load.topics,
                "state": group.state,
                "members": len(group.members),
                "lag": load.lag,
                "last_cycle": load.cycle,
                "status": told.get((load.group, load.table), groups_told.get(load.group)),
                "note": notes.pop(load.table, ""),
            }
        )
    rows += [
        {
            "group": None,
            "table": table,
            "topics": [],
            "state": None,
            "members": 0,
            "lag": None,
            "last_cycle": "",
            "status": None,
            "note": note,
        }
        for table, note in notes.items()
    ]
    return rows


def _pace_values(pace: Pace) -> Values:
    return {
        "produced_per_s": _rounded(pace.produced_per_s),
        "committed_per_s": _rounded(pace.committed_per_s),
    }


def _outlook_values(found: Outlook) -> Values:
    return {"trend": str(found.trend), "seconds_left": _rounded(found.seconds_left)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
