"""The page of a group: lag over time, partitions, members, and its loads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request

from millstream.console.cluster_snapshot import SampledGroup
from millstream.console.console import Console
from millstream.console.views.sampling import GroupRates, LagPoint, Rates, catch_up
from millstream.console.web.endpoints import Endpoint, Page, Values, group_url, name_of
from millstream.model import TopicPartition
from millstream.terminal.group_values import group_values


async def group(console: Console, request: Request) -> Values:
    """One group, with its loads, if it is one."""
    view, snapshot = await console.view()
    found = snapshot.group(name_of(request))
    now_ms = round(asyncio.get_running_loop().time() * 1000)
    values = _values(found, view.rates, console.sampler.points(found.name), now_ms)
    loads = [row for row in await console.load_rows(snapshot) if row["group"] == found.name]
    return {**console.freshness(view), **values, "loads": loads}


def _values(found: SampledGroup, rates: Rates, points: Sequence[LagPoint], now_ms: int) -> Values:
    """A group under the names of ``millstream group describe --json``, with rates and its lag over time."""
    values = group_values(found.description)
    for one in values["partitions"]:
        partition = TopicPartition(one["topic"], one["partition"])
        one.update(rates.partition(found.name, partition).as_dict())
    moving = rates.groups.get(found.name, GroupRates())
    return {
        **values,
        "topics": found.topics,
        "lag": found.lag,
        "note": found.note,
        **moving.as_dict(),
        **catch_up(found.lag, moving).as_dict(),
        "lag_history": [
            {"seconds_ago": round((now_ms - point.at_ms) / 1000, 1), "lag": point.lag} for point in points
        ],
    }


ENDPOINTS: Final = (
    Endpoint(
        "/api/groups/{name:path}",
        group,
        Page(
            path="/groups/{name:path}",
            template="group.html",
            title="{group}",
            section="Groups",
            url=group_url,
        ),
    ),
)
