"""Differences that are meant: each with its reason, which docs/compatibility.md repeats."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.kafka.differential.sides import PENDING
from tests.kafka.differential.values import Plain, Step

Predicate = Callable[[Step, tuple[str, ...], Plain, Plain], bool]


@dataclass(frozen=True)
class Known:
    """A difference, why it is there, and how it is recognised."""

    what: str
    why: str
    matches: Predicate


def _is_about(part: str) -> Predicate:
    return lambda step, where, ours, theirs: any(part in each for each in where)


def _settings(*names: str) -> Predicate:
    return lambda step, where, ours, theirs: any(each in names for each in where)


KNOWN: Final = [
    Known(
        "settings of tiered storage (`remote.log.*`, `local.retention.*`) are not listed",
        "there is no tiered storage to set up",
        lambda *arguments: _is_about("remote.log.")(*arguments) or _is_about("local.retention.")(*arguments),
    ),
    Known(
        "`min.insync.replicas` comes from Kafka's defaults, not from the cluster's dynamic settings",
        "Apache Kafka 4.1 writes it there for eligible leader replicas; one broker elects nobody",
        _settings("min.insync.replicas"),
    ),
    Known(
        "a batch with an unknown codec gets CORRUPT_MESSAGE, and a pending member that joins with an "
        "instance id UNKNOWN_MEMBER_ID",
        "Apache Kafka fails over both, and answers UNKNOWN_SERVER_ERROR",
        lambda step, where, ours, theirs: '"error_code": -1' in json.dumps(theirs),
    ),
    Known(
        "a batch that is sent again is answered without a timestamp where the topic keeps the producer's",
        "Apache Kafka gives the largest timestamp of the batch as the time of the append, which it is not",
        lambda step, where, ours, theirs: step.api == "Produce" and where[-1] == "log_append_time_ms",
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
        lambda step, where, ours, theirs: step.api == "DescribeConfigs" and "synonyms" in where,
    ),
    Known(
        "CreateTopics with `validate_only` names no topic id",
        "Apache Kafka names a random one, which no topic ever gets",
        lambda step, where, ours, theirs: bool(step.fields.get("validate_only")) and where[-1] == "topic_id",
    ),
]


def is_known(step: Step, where: tuple[str, ...], ours: Plain, theirs: Plain) -> bool:
    """Whether a difference is one of the list."""
    return any(each.matches(step, where, ours, theirs) for each in KNOWN)
