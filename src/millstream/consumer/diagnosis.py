"""``diagnose()``: why a consumer gets no records, from the state of its cores, in words."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.client.client import Client
from millstream.config import ConsumerConfig
from millstream.consumer.cores import ConsumerCores
from millstream.consumer.membership.values import Wait
from millstream.consumer.subscription import SubscriptionMode
from millstream.model import TopicPartition


def diagnose(config: ConsumerConfig, client: Client, cores: ConsumerCores) -> str:
    """A few sentences: the connection, the group, then the partitions, grouped by reason."""
    now_ms = client.now_ms()
    lines = [*_connection(config, client), *_subscription(client, cores), *_group(cores, now_ms)]
    by_words: dict[str, list[TopicPartition]] = {}
    for partition, reason in sorted(cores.fetcher.reasons().items()):
        by_words.setdefault(reason.words(now_ms), []).append(partition)
    lines += [f"{_names(partitions)}: {words.rstrip('.')}." for words, partitions in by_words.items()]
    return "\n".join(lines)


def _connection(config: ConsumerConfig, client: Client) -> Iterable[str]:
    if not client.cluster.brokers:
        servers = ", ".join(map(str, config.bootstrap_servers))
        error = client.metadata.last_error
        reason = f" ({error})" if error else ""
        advice = "check the address, and that a broker runs there"
        yield f"No broker has answered yet at {servers}{reason}: {advice}."


def _subscription(client: Client, cores: ConsumerCores) -> Iterable[str]:
    chosen = cores.subscription
    if chosen.mode is SubscriptionMode.NONE:
        yield "Nothing is subscribed or assigned: call subscribe() or assign()."
    elif chosen.pattern is not None and not chosen.topics:
        yield f"No topic matches the pattern {chosen.pattern.pattern!r} yet."
    for topic in sorted(cores.topics_read()):
        error = client.cluster.errors.get(topic)
        if error is not None:
            yield f"Topic {topic}: {error.meaning.rstrip('.')}."


def _group(cores: ConsumerCores, now_ms: int) -> Iterable[str]:
    member = cores.membership
    if member is None or not cores.subscription.is_by_group:
        return
    group = f"Group {member.metadata.group_id}"
    waiting = member.waiting()
    yield f"{group}: {waiting.words(now_ms).rstrip('.')}."
    if waiting.what is Wait.NOTHING and not cores.positions.assignment():
        yield (
            f"{group}: this member has no partitions, as there are at least as many other members as "
            "partitions, or the topics have none."
        )


def _names(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:10]))
    return shown if len(partitions) <= 10 else f"{shown} and {len(partitions) - 10} more"
