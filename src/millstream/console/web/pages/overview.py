"""The overview: the cluster, totals, and lists of topics, groups and loads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request

from millstream.console.cluster_snapshot import ClusterSnapshot, SampledGroup, SampledTopic
from millstream.console.console import Console
from millstream.console.views.sampling import GroupRates, Rates, catch_up, rounded
from millstream.console.web.endpoints import Endpoint, Page, Values


async def overview(console: Console, request: Request) -> Values:
    """Cluster, totals, topics, groups and loads."""
    view, snapshot = await console.view()
    return {
        **console.freshness(view),
        "cluster": _cluster(snapshot, console.settings.servers),
        "totals": _totals(snapshot, view.rates),
        "topics": [topic_row(topic, view.rates) for topic in snapshot.topics.values()],
        "groups": [_group_row(group, view.rates) for group in snapshot.groups.values()],
        "loads": await console.load_rows(snapshot),
    }


def _list_of(name: str) -> Callable[[Console, Request], Awaitable[Values]]:
    async def answer(console: Console, request: Request) -> Values:
        found = await overview(console, request)
        return {each: found[each] for each in ("age_s", "trouble", "refresh_s", name)}

    return answer


async def _page(console: Console, request: Request, answer: Values) -> Values:
    return {"shows_internal": "internal" in request.query_params}


def _cluster(snapshot: ClusterSnapshot, servers: str) -> Values:
    found = snapshot.cluster
    return {
        "address": servers,
        "cluster_id": found.cluster_id,
        "controller": None if found.controller is None else found.controller.node_id,
        "brokers": [
            {"id": one.node_id, "host": one.host, "port": one.port, "rack": one.rack} for one in found.brokers
        ],
    }


def _totals(snapshot: ClusterSnapshot, rates: Rates) -> Values:
    """Sums over all topics but internal ones."""
    topics = [topic for topic in snapshot.topics.values() if not topic.internal]
    known = [rates.topics[topic.name] for topic in topics if topic.name in rates.topics]
    return {
        "brokers": len(snapshot.cluster.brokers),
        "topics": len(topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "records": sum(topic.records or 0 for topic in topics),
        "bytes": sum(topic.size_bytes or 0 for topic in topics),
        "produced_per_s": rounded(sum(known)) if known else None,
        "groups": len(snapshot.groups),
        "lag": sum(group.lag or 0 for group in snapshot.groups.values()),
    }


def topic_row(topic: SampledTopic, rates: Rates) -> Values:
    """A topic in a list."""
    return {
        "name": topic.name,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "records": topic.records,
        "bytes": topic.size_bytes,
        "produced_per_s": rounded(rates.topics.get(topic.name)),
    }


def _group_row(group: SampledGroup, rates: Rates) -> Values:
    moving = rates.groups.get(group.name, GroupRates())
    return {
        "group": group.name,
        "state": group.description.state,
        "members": len(group.description.members),
        "topics": group.topics,
        "lag": group.lag,
        "note": group.note,
        **moving.as_dict(),
        **catch_up(group.lag, moving).as_dict(),
    }


ENDPOINTS: Final = (
    Endpoint(
        "/api/overview",
        overview,
        Page(path="/", template="overview.html", title="Overview", more=_page),
    ),
    *(Endpoint(f"/api/{name}", _list_of(name)) for name in ("topics", "groups", "loads")),
)
