"""The page of a topic: partitions, the groups that read it, records and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request

from millstream.admin import ConfigEntry
from millstream.console.cluster_snapshot import ClusterSnapshot, SampledGroup, SampledTopic
from millstream.console.console import Console
from millstream.console.errors import BadRequestError
from millstream.console.records import MOST_RECORDS, USUAL_RECORDS, RecordsRead, from_offset, newest
from millstream.console.views.sampling import Rates, rounded
from millstream.console.web.endpoints import Endpoint, Page, Values, name_of, topic_url
from millstream.console.web.pages.overview import topic_row
from millstream.errors import MillstreamError
from millstream.model import TopicPartition

_MOST_OFFSET: Final = 2**63 - 1
_MOST_PARTITION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    """Which records: the newest of all partitions or of one, or ``count`` from an offset on."""

    partition: int | None = None
    offset: int | None = None
    count: int = USUAL_RECORDS


async def topic(console: Console, request: Request) -> Values:
    """One topic, without its records."""
    view, snapshot = await console.view()
    found = snapshot.topic(name_of(request))
    configs = await console.configs(found, view)
    return {**console.freshness(view), **topic_values(found, snapshot, view.rates, configs)}


async def records(console: Console, request: Request) -> Values:
    """Some records of a topic, the newest first."""
    return await _records(console, name_of(request), _wanted(request))


async def _page(console: Console, request: Request, answer: Values) -> Values:
    wanted = _wanted(request)
    if wanted.partition is None and len(answer["partitions"]) == 1:
        wanted = replace(wanted, partition=0)
    listed = await _records(console, answer["name"], wanted)
    return {"listed": listed, "paging": paging_of(answer, listed)}


def topic_values(
    topic: SampledTopic, snapshot: ClusterSnapshot, rates: Rates, configs: Mapping[str, ConfigEntry]
) -> Values:
    """A topic under the names of ``millstream topic describe --json``, with rates and groups."""
    partitions = [
        {
            "partition": one.partition,
            "leader": one.leader,
            "replicas": list(one.replicas),
            "first_offset": one.start,
            "end_offset": one.end,
            "records": one.records,
            "bytes": one.size_bytes,
            "produced_per_s": rounded(rates.produced.get(TopicPartition(topic.name, one.partition))),
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


def _reader(group: SampledGroup, topic: str, rates: Rates) -> Values:
    """A group, with what it reads of one topic."""
    here = [one for one in group.description.partitions if one.topic == topic]
    lags = [one.lag for one in here if one.lag is not None]
    committed = rates.committed.get(group.name, {})
    moving = [committed[each] for one in here if (each := TopicPartition(topic, one.partition)) in committed]
    return {
        "group": group.name,
        "state": group.description.state,
        "members": len({one.member.member_id for one in here if one.member is not None}),
        "lag": sum(lags) if lags else None,
        "committed_per_s": rounded(sum(moving)) if moving else None,
    }


async def _records(console: Console, name: str, wanted: RecordsWanted) -> Values:
    _, snapshot = await console.view()
    topic = snapshot.topic(name)
    if wanted.partition is not None:
        topic.partition(wanted.partition)  # raises NotFoundError
    if wanted.partition is not None and wanted.offset is not None:
        ranges = from_offset(topic, wanted.partition, wanted.offset, wanted.count)
    else:
        ranges = newest(topic, wanted.count, wanted.partition)
    found, note = RecordsRead(()), ""
    try:
        found = await console.records(topic, ranges, wanted.count)
    except MillstreamError as error:
        note = f"the records could not be read: {error}"
    if not found.is_complete:
        note = "not all records could be read in a few seconds: choose a partition, or fewer records"
    return {
        "topic": name,
        "partition": wanted.partition,
        "offset": wanted.offset,
        "count": wanted.count,
        "note": note,
        "records": [one.as_dict() for one in found.records],
    }


def _wanted(request: Request) -> RecordsWanted:
    """Read ``?partition=0&offset=100&count=20``; each can be missing or, as in a form, empty."""
    partition = _number(request, "partition", _MOST_PARTITION)
    offset = _number(request, "offset", _MOST_OFFSET)
    count = _number(request, "count", _MOST_OFFSET)
    if offset is not None and partition is None:
        raise BadRequestError("offset needs a partition: give partition as well.")
    if count is None:
        count = USUAL_RECORDS
    return RecordsWanted(partition, offset, max(1, min(count, MOST_RECORDS)))


def _number(request: Request, name: str, most: int) -> int | None:
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > most:
        raise BadRequestError(f"{name} must be a number from 0 on, not {text[:40]!r}.")
    return int(text)


def paging_of(topic: Values, listed: Values) -> Values:
    """The offsets where older and newer records begin; None where there are none.

    Also None without a chosen partition: offsets of several partitions have no common order.
    """
    if listed["partition"] is None:
        return {"older": None, "newer": None, "is_newest": True}
    one = next(each for each in topic["partitions"] if each["partition"] == listed["partition"])
    start, end, count = one["first_offset"] or 0, one["end_offset"] or 0, listed["count"]
    first = max(start, end - count if listed["offset"] is None else listed["offset"])
    after = first + count
    return {
        "older": max(start, first - count) if first > start else None,
        "newer": after if listed["offset"] is not None and after < end else None,
        "is_newest": listed["offset"] is None,
    }


ENDPOINTS: Final = (
    Endpoint(
        "/api/topics/{name}",
        topic,
        Page(
            path="/topics/{name}",
            template="topic.html",
            title="{name}",
            section="Topics",
            url=topic_url,
            more=_page,
        ),
    ),
    Endpoint("/api/topics/{name}/records", records),
)
