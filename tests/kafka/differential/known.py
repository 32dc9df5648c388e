"""Differences that are meant: each with its reason, which docs/compatibility.md repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.kafka.differential.log_steps import UNKNOWN_CODEC
from tests.kafka.differential.sides import PENDING
from tests.kafka.differential.topic_steps import OPERATIONS
from tests.kafka.differential.values import NO_TIME, TIMESTAMP_MS, Plain, Step

Predicate = Callable[[Step, tuple[str, ...], Plain, Plain], bool]


@dataclass(frozen=True)
class Known:
    """A difference, why it is there, and how it is recognised."""

    what: str
    why: str
    matches: Predicate


def _at(reply: Plain, where: tuple[str, ...]) -> Plain:
    """What stands in a reply; None where there is no such place."""
    for each in where:
        if isinstance(reply, dict):
            reply = reply.get(each)
        elif isinstance(reply, list) and each.isdigit() and int(each) < len(reply):
            reply = reply[int(each)]
        else:
            return None
    return reply


def _about_settings(*begin: str) -> Predicate:
    """About a setting whose name begins so."""
    return lambda step, where, ours, theirs: any(each.startswith(begin) for each in where)


def _says(api: str, ours_says: int, theirs_says: int, has: Callable[[Step], bool]) -> Predicate:
    """Where the two have different error codes for a request that has something."""

    def matches(step: Step, where: tuple[str, ...], ours: Plain, theirs: Plain) -> bool:
        codes = (_at(ours, where), _at(theirs, where))
        return (
            step.api == api
            and where[-1:] == ("error_code",)
            and codes == (ours_says, theirs_says)
            and has(step)
        )

    return matches


def _has_unknown_codec(step: Step) -> bool:
    return any(damage == UNKNOWN_CODEC for batch in _batches(step) for damage in batch.get("damage", ()))


def _has_unknown_operation(step: Step) -> bool:
    changes = [change for resource in step.fields["resources"] for change in resource["configs"]]
    return any(change["config_operation"] not in OPERATIONS for change in changes)


def _is_pending_and_static(step: Step, where: tuple[str, ...], ours: Plain, theirs: Plain) -> bool:
    if step.api != "JoinGroup" or step.fields.get("group_instance_id") is None or PENDING in (ours, theirs):
        return False
    codes = (ours["error_code"], theirs["error_code"])
    return codes == (25, -1) and where in (("error_code",), ("member_id",))


def _batches(step: Step) -> Iterator[Plain]:
    for topic in step.fields["topic_data"]:
        for partition in topic["partition_data"]:
            yield from partition["records"]


def _is_sent_again(step: Step, where: tuple[str, ...], ours: Plain, theirs: Plain) -> bool:
    """A batch that both have already, in a topic that keeps the producer's timestamps."""
    if step.api != "Produce" or where[-1:] != ("log_append_time_ms",):
        return False
    times = (_at(ours, where), _at(theirs, where))
    newest = [TIMESTAMP_MS + len(batch["values"]) - 1 for batch in _batches(step) if "sequence" in batch]
    return times[0] == NO_TIME and times[1] in newest


KNOWN: Final = [
    Known(
        "settings of tiered storage (`remote.log.*`) are not listed",
        "there is no tiered storage to set up",
        _about_settings("remote.log."),
    ),
    Known(
        "`min.insync.replicas` comes from Kafka's defaults, not from the cluster's dynamic settings",
        "Apache Kafka writes it there for eligible leader replicas; one broker elects no one",
        _about_settings("min.insync.replicas"),
    ),
    Known(
        "a batch with an unknown codec gets CORRUPT_MESSAGE",
        "Apache Kafka fails over it, and answers UNKNOWN_SERVER_ERROR",
        _says("Produce", 2, -1, _has_unknown_codec),
    ),
    Known(
        "a member that was given an id, and then joins with it and an instance id, gets UNKNOWN_MEMBER_ID",
        "Apache Kafka fails over it, and answers UNKNOWN_SERVER_ERROR",
        _is_pending_and_static,
    ),
    Known(
        "a kind of change to a setting that does not exist gets INVALID_REQUEST",
        "Apache Kafka fails over it, and answers UNKNOWN_SERVER_ERROR",
        _says("IncrementalAlterConfigs", 42, -1, _has_unknown_operation),
    ),
    Known(
        "a batch that is sent again is answered without a timestamp where the topic keeps the producer's",
        "Apache Kafka gives the largest timestamp of the batch as the time of the append, which it is not",
        _is_sent_again,
    ),
    Known(
        "a member that joins or syncs again while it waits gets REBALANCE_IN_PROGRESS for the first request",
        "Apache Kafka never answers the earlier one, and its client waits until it gives up",
        lambda step, where, ours, theirs: (
            step.api in ("JoinGroup", "SyncGroup") and theirs == PENDING and ours["error_code"] == 27
        ),
    ),
    Known(
        "`retention.ms` and `segment.ms` name the broker's settings that they stand for (synonyms)",
        "Apache Kafka leaves out those that its own hours and minutes stand behind",
        lambda step, where, ours, theirs: (
            step.api == "DescribeConfigs"
            and "synonyms" in where
            and ("retention.ms" in where or "segment.ms" in where)
        ),
    ),
    Known(
        "CreateTopics with `validate_only` names no topic id",
        "Apache Kafka names a random one, which no topic ever gets",
        lambda step, where, ours, theirs: (
            step.api == "CreateTopics" and bool(step.fields["validate_only"]) and where[-1:] == ("topic_id",)
        ),
    ),
]


def is_known(step: Step, where: tuple[str, ...], ours: Plain, theirs: Plain) -> bool:
    """Whether a difference is one of the list."""
    return any(each.matches(step, where, ours, theirs) for each in KNOWN)
