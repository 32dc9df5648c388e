"""``diagnose()``: why a consumer gets no records, from the state of its cores, in words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from millstream.client.client import Client
from millstream.config import ConsumerConfig
from millstream.consumer.cores import ConsumerCores
from millstream.consumer.fetching import reasons
from millstream.consumer.membership import Wait
from millstream.consumer.subscription import SubscriptionMode
from millstream.model import TopicPartition


def diagnose(config: ConsumerConfig, client: Client, cores: ConsumerCores) -> str:
    """A few sentences: the connection, the group, then the partitions, grouped by reason."""
    now_ms = client.now_ms()
    lines = [*_connection(config, client), *_subscription(client, cores), *_group(cores, now_ms)]
    by_words: dict[str, list[TopicPartition]] = {}
    for partition, reason in sorted(cores.fetcher.reasons().items()):
        by_words.setdefault(_words(reason, now_ms), []).append(partition)
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


@singledispatch
def _words(reason: reasons.Reason, now_ms: int) -> str:
    raise AssertionError(f"no words for {reason!r}")


@_words.register
def _(reason: reasons.Failing, now_ms: int) -> str:
    return f"the next poll() raises {type(reason.error).__name__}: {reason.error}"


@_words.register
def _(reason: reasons.Paused, now_ms: int) -> str:
    return "paused: call resume()" + (", records are waiting" if reason.buffered else "")


@_words.register
def _(reason: reasons.Buffered, now_ms: int) -> str:
    return f"records are there from offset {reason.offset} on: call poll()"


@_words.register
def _(reason: reasons.NoLeader, now_ms: int) -> str:
    return "no broker leads the partition at the moment, or the topic does not exist"


@_words.register
def _(reason: reasons.AwaitingCommitted, now_ms: int) -> str:
    return "the group's committed offset is being asked for" + _because(reason.error)


@_words.register
def _(reason: reasons.Resetting, now_ms: int) -> str:
    if reason.strategy is None:
        return "there is no offset to start from, and auto_offset_reset is none: seek()"
    return (
        f"there is no offset to start from, and the {reason.strategy.value} one is being looked up"
        + _because(reason.error)
    )


@_words.register
def _(reason: reasons.Validating, now_ms: int) -> str:
    return f"the new leader is being asked whether it has offset {reason.offset}" + _because(reason.error)


@_words.register
def _(reason: reasons.Retrying, now_ms: int) -> str:
    wait_s = max(0, reason.retry_at_ms - now_ms) / 1000
    return f"fetching from broker {reason.node_id} failed ({reason.error}), again in {wait_s:.1f} s"


@_words.register
def _(reason: reasons.CaughtUp, now_ms: int) -> str:
    since_s = max(0, now_ms - reason.since_ms) / 1000
    return f"caught up: nothing was written after offset {reason.offset} for {since_s:.1f} s"


@_words.register
def _(reason: reasons.NotWanted, now_ms: int) -> str:
    return f"read up to offset {reason.offset}, where fetch_until() has set the end"


@_words.register
def _(reason: reasons.Fetching, now_ms: int) -> str:
    words = f"a fetch from offset {reason.offset} is under way at broker {reason.node_id}"
    if reason.min_bytes > 1:
        words += (
            f", which waits for fetch_min_bytes ({reason.min_bytes}) "
            f"or fetch_max_wait_ms ({reason.max_wait_ms})"
        )
    return words


@_words.register
def _(reason: reasons.AwaitingTurn, now_ms: int) -> str:
    return (
        f"the next fetch from broker {reason.node_id} waits for an earlier one, or for room: "
        f"{reason.buffered_bytes} bytes are waiting for poll()"
    )


def _because(error: Exception | None) -> str:
    return "" if error is None else f" (the last try failed: {error})"
