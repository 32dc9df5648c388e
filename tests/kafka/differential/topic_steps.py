"""What those ask for who look after topics and the cluster."""

from __future__ import annotations

from typing import Final

from tests.kafka.differential.steps import TOPICS, Steps
from tests.kafka.differential.values import Plain, Step

OPERATIONS: Final = (0, 1, 2, 3)
"""What can be done to a setting: set, delete, append, subtract."""


class TopicSteps(Steps):
    """Topics made, grown, deleted and described; their settings; the cluster."""

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
        operation = self._random.choices((*OPERATIONS, 9), (6, 2, 2, 2, 1))[0]
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
        types = self._random.choice(([4], [8], [16], [4, 8, 16], [4, 4], [99]))
        self._add("ListConfigResources", {"resource_types": types})
        self._add(
            "ElectLeaders",
            {
                "election_type": self._random.choice((0, 1)),
                "topic_partitions": [{"topic": name, "partitions": [0, 9]}],
                "timeout_ms": 10_000,
            },
        )
        self._add("DescribeProducers", {"topics": [{"name": "~nowhere", "partition_indexes": [0]}]})
