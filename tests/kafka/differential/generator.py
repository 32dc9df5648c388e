"""Sequences from seeds: what well-behaved clients do, with the mistakes of all the others in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tests.kafka.differential.values import API_BY_NAME, Plain, Step

GROUPS: Final = ("g0", "g1")
MEMBERS: Final = "abc"
TOPICS: Final = {"~t0": 1, "~t1": 3, "~t2": 2}
"""Name and partitions; the last is not there at first."""
NOBODY: Final = "nobody-00000000-0000-0000-0000-000000000000"
CODECS: Final = ("NONE", "NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD")


def sequence(seed: int) -> list[Step]:
    """The sequence of a seed: about groups, about logs, or about both."""
    return Generator(seed).sequence()


class Generator:
    """Makes one sequence."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._steps: list[Step] = []
        self._producers = 0

    def sequence(self) -> list[Step]:
        families = {
            "groups": [(self._group_work, 5), (self._commit_work, 4), (self._group_admin, 2)],
            "logs": [(self._log_work, 8), (self._topic_work, 3)],
            "both": [
                (self._group_work, 4),
                (self._commit_work, 3),
                (self._group_admin, 2),
                (self._log_work, 4),
                (self._topic_work, 2),
            ],
        }
        work = families[self._random.choice(list(families))]
        for name, partitions in list(TOPICS.items())[:2]:
            self._create(name, partitions)
        choices, weights = zip(*work, strict=True)
        wanted = self._random.randint(12, 30)
        while len(self._steps) < wanted:
            self._random.choices(choices, weights)[0]()
        return self._steps

    # --- helpers

    def _add(
        self, api: str, fields: dict[str, Plain], *, on: str = "main", alias: str = "", group: str = ""
    ) -> None:
        found = API_BY_NAME[api]
        version = self._random.randint(found.min_version, found.max_version)
        self._steps.append(Step(api, version, fields, on, alias, group))

    def _one(self, *work: Callable[[], None]) -> None:
        self._random.choice(work)()

    def _rarely(self, times_in_ten: int = 1) -> bool:
        return self._random.random() < times_in_ten / 10

    def _member(self, group: str) -> str:
        return group + self._random.choice(MEMBERS[: self._random.choice((1, 2, 2, 3))])

    def _id_of(self, alias: str) -> str:
        return self._random.choices((f"$member:{alias}", NOBODY, ""), (18, 1, 1))[0]

    def _generation(self, group: str) -> Plain:
        delta = self._random.choices((0, -1, 1), (12, 1, 1))[0]
        return self._random.choices((f"$generation:{group}+{delta}", -1), (19, 1))[0]

    def _instance(self, alias: str) -> Plain:
        """Members called c are static, mostly."""
        if not alias.endswith("c"):
            return None
        return f"i-{alias}" if not self._rarely() else None

    def _topic(self) -> str:
        return self._random.choices((*TOPICS, "~nowhere"), (6, 6, 2, 1))[0]

    def _partition(self, topic: str) -> int:
        return self._random.choices((0, TOPICS.get(topic, 1) - 1, 1, 7), (6, 3, 2, 1))[0]

    # --- groups

    def _group_work(self) -> None:
        self._one(self._round, self._round, self._round, self._join, self._sync, self._heartbeat, self._leave)

    def _round(self) -> None:
        """What members do in a rebalance: all join, then all sync."""
        group = self._random.choice(GROUPS)
        members = [group + letter for letter in MEMBERS[: self._random.choice((1, 2, 2, 3))]]
        for alias in members:
            self._join_as(group, alias, f"$member:{alias}" if self._rarely(5) else "")
            if not self._rarely(3):
                self._join_as(group, alias, f"$member:{alias}")
        for alias in members:
            self._sync_as(group, alias, f"$member:{alias}", f"$generation:{group}")

    def _join(self) -> None:
        group = self._random.choice(GROUPS)
        alias = self._member(group)
        self._join_as(group, alias, self._id_of(alias))

    def _join_as(self, group: str, alias: str, member_id: str) -> None:
        protocols = [
            {"name": name, "metadata": f"topics:{self._random.choice(('~t0', '~t1', '~t0,~t1'))}"}
            for name in self._random.choice((("range",), ("range", "roundrobin"), ("roundrobin", "range")))
        ]
        if self._rarely():
            protocols = self._random.choice(([], [{"name": "another", "metadata": "x"}]))
        self._add(
            "JoinGroup",
            {
                "group_id": f"~{group}",
                "session_timeout_ms": self._random.choices((30_000, 40_000, 10, 9_999_999), (20, 3, 1, 1))[0],
                "rebalance_timeout_ms": 60_000,
                "member_id": member_id,
                "group_instance_id": self._instance(alias),
                "protocol_type": self._random.choices(("consumer", "connect", ""), (28, 1, 1))[0],
                "protocols": protocols,
                "reason": "why not",
            },
            on=alias,
            alias=alias,
            group=group,
        )

    def _sync(self) -> None:
        group = self._random.choice(GROUPS)
        alias = self._member(group)
        self._sync_as(group, alias, self._id_of(alias), self._generation(group))

    def _sync_as(self, group: str, alias: str, member_id: str, generation: Plain) -> None:
        self._add(
            "SyncGroup",
            {
                "group_id": f"~{group}",
                "generation_id": generation,
                "member_id": member_id,
                "group_instance_id": self._instance(alias),
                "protocol_type": self._random.choices(("consumer", None, "connect"), (10, 3, 1))[0],
                "protocol_name": self._random.choices(("range", None, "roundrobin"), (6, 6, 1))[0],
                "assignments": self._random.choices((f"$everyone:{group}", []), (9, 1))[0],
            },
            on=alias,
        )

    def _heartbeat(self) -> None:
        group = self._random.choice(GROUPS)
        alias = self._member(group)
        self._add(
            "Heartbeat",
            {
                "group_id": f"~{group}",
                "generation_id": self._generation(group),
                "member_id": self._id_of(alias),
                "group_instance_id": self._instance(alias),
            },
            on=alias,
        )

    def _leave(self) -> None:
        group = self._random.choice(GROUPS)
        leaving = [self._member(group) for _ in range(self._random.choice((1, 1, 2)))]
        self._add(
            "LeaveGroup",
            {
                "group_id": f"~{group}",
                "member_id": self._id_of(leaving[0]),
                "members": [
                    {"member_id": self._id_of(alias), "group_instance_id": self._instance(alias)}
                    for alias in leaving
                ],
            },
            on=leaving[0],
        )

    # --- offsets of groups

    def _commit_work(self) -> None:
        self._one(
            self._commit,
            self._commit,
            self._commit,
            self._fetch_offsets,
            self._fetch_offsets,
            self._delete_offsets,
        )

    def _commit(self) -> None:
        group = self._random.choice(GROUPS)
        alias = self._member(group)
        outside = self._rarely(4)
        topic = self._topic()
        # A note that is too long comes with a partition that has none. (Alone, in a group that is not there
        # yet, it leaves Kafka with a group that some requests see and others do not.)
        note, also = "", list[Plain]()
        if self._rarely(2):
            note = "x*5000"
            also = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
        self._add(
            "OffsetCommit",
            {
                "group_id": f"~{group}" if not self._rarely() else self._random.choice(("", "~other")),
                "generation_id_or_member_epoch": -1 if outside else self._generation(group),
                "member_id": "" if outside else self._id_of(alias),
                "group_instance_id": None if outside else self._instance(alias),
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": self._partition(topic),
                                "committed_offset": self._random.choice((0, 5, 100, -1)),
                                "committed_leader_epoch": self._random.choice((-1, 0, 3)),
                                "committed_metadata": self._random.choice(("", "note", None, note)),
                            },
                            *also,
                        ],
                    }
                ],
            },
            on=alias,
        )

    def _fetch_offsets(self) -> None:
        group = self._random.choice((*GROUPS, *GROUPS, "other"))
        topic = self._topic()
        topics = (
            None if self._rarely(3) else [{"name": topic, "partition_indexes": [0, self._partition(topic)]}]
        )
        version = self._random.randint(1, 9)
        if version < 2 and topics is None:
            version = 2
        fields = {
            "group_id": f"~{group}",
            "topics": topics,
            "groups": [{"group_id": f"~{group}", "topics": topics}],
            "require_stable": self._rarely(3),
        }
        self._steps.append(Step("OffsetFetch", version, fields))

    def _delete_offsets(self) -> None:
        topic = self._topic()
        self._add(
            "OffsetDelete",
            {
                "group_id": f"~{self._random.choice((*GROUPS, *GROUPS, 'other'))}",
                "topics": [{"name": topic, "partitions": [{"partition_index": self._partition(topic)}]}],
            },
        )

    def _group_admin(self) -> None:
        groups = [f"~{name}" for name in self._random.choice((("g0",), ("g1",), ("g0", "g1", "other")))]
        self._one(
            lambda: self._add(
                "DescribeGroups", {"groups": groups, "include_authorized_operations": self._rarely(3)}
            ),
            lambda: self._add(
                "ListGroups",
                {
                    "states_filter": self._random.choice(
                        ([], ["Stable"], ["Empty", "PreparingRebalance"], ["x"])
                    ),
                    "types_filter": self._random.choice(([], ["classic"], ["consumer"])),
                },
            ),
            lambda: self._add("DeleteGroups", {"groups_names": groups}),
        )

    # --- logs

    def _log_work(self) -> None:
        self._one(
            self._produce,
            self._produce,
            self._produce_idempotently,
            self._fetch,
            self._fetch,
            self._list_offsets,
            self._delete_records,
            self._epoch_ends,
        )

    def _batch(self) -> dict[str, Plain]:
        batch: dict[str, Plain] = {
            "values": [f"v{number}" for number in range(self._random.randint(1, 4))],
            "codec": self._random.choice(CODECS),
            "timestamp": 1_700_000_000_000 + self._random.randint(-5, 5) * 1000,
        }
        if self._rarely():
            batch["damage"] = [
                self._random.choice(([16, 1], [20, 0], [22, 7], [60, 9], [22, 0x20], [22, 0x10]))
            ]
        return batch

    def _produce(self) -> None:
        batches = self._random.choices((1, 2, 0), (20, 1, 1))[0]
        self._produce_batches([self._batch() for _ in range(batches)])

    def _produce_batches(self, batches: list[dict[str, Plain]]) -> None:
        topic = self._topic()
        self._add(
            "Produce",
            {
                "transactional_id": None,
                "acks": self._random.choices((-1, 1, 5), (6, 6, 1))[0],
                "timeout_ms": 5000,
                "topic_data": [
                    {
                        "name": topic,
                        "topic_id": f"$topic:{topic}",
                        "partition_data": [{"index": self._partition(topic), "records": batches}],
                    }
                ],
            },
        )

    def _produce_idempotently(self) -> None:
        if not self._producers or self._rarely(3):
            self._producers += 1
            self._add(
                "InitProducerId",
                {"transactional_id": None, "transaction_timeout_ms": 1000},
                alias=f"p{self._producers}",
            )
        for _ in range(self._random.randint(1, 3)):
            batch = {
                "values": ["i"] * self._random.choice((1, 2)),
                "producer": f"$producer:p{self._random.randint(1, self._producers)}",
                "epoch": self._random.choices((0, 1), (9, 1))[0],
                "sequence": self._random.choice((0, 0, 1, 2, 5)),
            }
            self._produce_batches([batch])

    def _fetch(self) -> None:
        topic = self._topic()
        session = self._random.choices((0, "$session:s", 77), (8, 3, 1))[0]
        self._add(
            "Fetch",
            {
                "max_wait_ms": self._random.choice((0, 50)),
                "min_bytes": self._random.choice((0, 1)),
                "max_bytes": 1 << 20,
                "isolation_level": self._random.choice((0, 1)),
                "session_id": session,
                "session_epoch": self._random.choice((-1, 0))
                if session == 0
                else self._random.choice((1, 2, 0, -1)),
                "topics": [
                    {
                        "topic": topic,
                        "topic_id": f"$topic:{topic}",
                        "partitions": [
                            {
                                "partition": self._partition(topic),
                                "current_leader_epoch": self._random.choices((-1, 0, 5), (6, 6, 1))[0],
                                "fetch_offset": self._random.choice((0, 0, 1, 2, 3, 50, -1)),
                                "last_fetched_epoch": self._random.choices((-1, 0, 4), (6, 3, 1))[0],
                                "log_start_offset": -1,
                                "partition_max_bytes": self._random.choice((1 << 20, 100, 0)),
                            }
                        ],
                    }
                ],
            },
            alias="s",
        )

    def _list_offsets(self) -> None:
        topic = self._topic()
        when = self._random.choice(
            (-1, -2, -3, 1_699_999_999_000, 1_700_000_000_001, 1_800_000_000_000, -4, -5, -9)
        )
        self._add(
            "ListOffsets",
            {
                "replica_id": -1,
                "isolation_level": self._random.choice((0, 1)),
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": self._partition(topic),
                                "current_leader_epoch": self._random.choices((-1, 0, 5), (6, 6, 1))[0],
                                "timestamp": when,
                            }
                        ],
                    }
                ],
                "timeout_ms": 1000,
            },
        )

    def _delete_records(self) -> None:
        topic = self._topic()
        offset = self._random.choice((0, 1, 2, 3, -1, -2, 99))
        partitions = [{"partition_index": self._partition(topic), "offset": offset}]
        self._add(
            "DeleteRecords", {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 5000}
        )

    def _epoch_ends(self) -> None:
        topic = self._topic()
        wanted = {
            "partition": self._partition(topic),
            "current_leader_epoch": self._random.choice((-1, 0, 5)),
            "leader_epoch": self._random.choice((0, 1, -1)),
        }
        self._add(
            "OffsetForLeaderEpoch", {"replica_id": -1, "topics": [{"topic": topic, "partitions": [wanted]}]}
        )

    # --- topics

    def _topic_work(self) -> None:
        self._one(
            self._create_some,
            self._create_some,
            self._delete_topics,
            self._grow,
            self._metadata,
            self._metadata,
            self._cluster,
            self._configs,
        )

    def _create(self, name: str, partitions: int, **more: Plain) -> None:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
            **more,
        }
        self._add("CreateTopics", {"topics": [topic], "timeout_ms": 10_000, "validate_only": False})

    def _create_some(self) -> None:
        name = self._random.choice((*TOPICS, "~t2", "~t2", "~bad name", "", ".", "x*250"))
        topic: dict[str, Plain] = {
            "name": name,
            "num_partitions": self._random.choices((TOPICS.get(name, 1), -1, 0, -2), (6, 2, 1, 1))[0],
            "replication_factor": self._random.choices((1, -1, 0, 2), (6, 2, 1, 1))[0],
            "assignments": [],
            "configs": [],
        }
        if self._rarely(3):
            topic |= {
                "num_partitions": self._random.choice((-1, -1, 2)),
                "replication_factor": self._random.choice((-1, -1, 1)),
                "assignments": self._random.choice(
                    (
                        [{"partition_index": 0, "broker_ids": [1]}],
                        [{"partition_index": 1, "broker_ids": [1]}],
                        [{"partition_index": 0, "broker_ids": [9]}],
                        [{"partition_index": 0, "broker_ids": []}],
                        [{"partition_index": 0, "broker_ids": [1, 1]}],
                        [{"partition_index": number, "broker_ids": [1]} for number in (0, 1)],
                        [
                            {"partition_index": 0, "broker_ids": [1]},
                            {"partition_index": 0, "broker_ids": [1]},
                        ],
                    )
                ),
            }
        if self._rarely(4):
            topic["configs"] = self._random.choice(
                (
                    [{"name": "retention.ms", "value": "1000"}],
                    [{"name": "retention.ms", "value": "soon"}],
                    [{"name": "no.such", "value": "1"}],
                    [{"name": "cleanup.policy", "value": None}],
                    [{"name": "cleanup.policy", "value": "compact,delete"}],
                    [{"name": "message.timestamp.type", "value": "LogAppendTime"}],
                )
            )
        topics = [topic, topic] if self._rarely() else [topic]
        self._add("CreateTopics", {"topics": topics, "timeout_ms": 10_000, "validate_only": self._rarely(3)})

    def _delete_topics(self) -> None:
        name = self._random.choice(("~t2", "~t2", "~t0", "~nowhere"))
        by_id = {"name": None, "topic_id": f"$topic:{name}"}
        one = self._random.choice(({"name": name}, by_id, {"name": name, "topic_id": f"$topic:{name}"}))
        topics = [one, one] if self._rarely() else [one]
        names = [name, name] if self._rarely() else [name]
        self._add("DeleteTopics", {"topics": topics, "topic_names": names, "timeout_ms": 10_000})

    def _grow(self) -> None:
        name = self._topic()
        topic = {
            "name": name,
            "count": self._random.choice((4, 2, 1, 0, -1)),
            "assignments": self._random.choices(
                (None, [], [{"broker_ids": [1]}], [{"broker_ids": [9]}]), (8, 1, 1, 1)
            )[0],
        }
        topics = [topic, topic] if self._rarely() else [topic]
        self._add(
            "CreatePartitions", {"topics": topics, "timeout_ms": 10_000, "validate_only": self._rarely(3)}
        )

    def _metadata(self) -> None:
        name = self._topic()
        topic: dict[str, Plain] = {"name": name}
        version = self._random.randint(4, 13)
        if version >= 12 and self._rarely(5):
            topic = {"name": None, "topic_id": f"$topic:{name}"}
        fields = {
            "topics": None if self._rarely(2) else [topic],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": self._rarely(3),
            "include_topic_authorized_operations": self._rarely(3),
        }
        self._steps.append(Step("Metadata", version, fields))

    def _cluster(self) -> None:
        names = sorted({self._topic() for _ in range(self._random.randint(1, 3))})
        cursor = {"topic_name": self._topic(), "partition_index": self._random.choice((0, 1))}
        key_type = self._random.choices((0, 9), (4, 1))[0]
        self._one(
            lambda: self._add(
                "FindCoordinator", {"key": "~g0", "key_type": key_type, "coordinator_keys": ["~g0", ""]}
            ),
            lambda: self._add("DescribeCluster", {"include_cluster_authorized_operations": self._rarely(5)}),
            lambda: self._add(
                "DescribeTopicPartitions",
                {
                    "topics": [{"name": name} for name in names],
                    "response_partition_limit": self._random.choice((1, 2, 2000)),
                    "cursor": cursor if self._rarely(3) else None,
                },
            ),
        )

    def _configs(self) -> None:
        name, key = self._topic(), self._random.choice(("retention.ms", "cleanup.policy", "no.such"))
        value = self._random.choice(("1000", "compact", "delete", "soon", None))
        resource = {"resource_type": self._random.choices((2, 77), (9, 1))[0], "resource_name": name}
        operation = self._random.choices((0, 1, 2, 3, 9), (6, 2, 2, 2, 1))[0]
        change = {"name": key, "config_operation": operation, "value": value}
        self._add(
            "IncrementalAlterConfigs",
            {"resources": [{**resource, "configs": [change]}], "validate_only": self._rarely(2)},
        )
        keys = ["retention.ms", "cleanup.policy", "no.such"]
        self._add(
            "DescribeConfigs",
            {
                "resources": [{**resource, "configuration_keys": keys}],
                "include_synonyms": self._rarely(5),
            },
        )
