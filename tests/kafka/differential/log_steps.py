"""What producers and readers ask for."""

from __future__ import annotations

from typing import Final

from tests.kafka.differential.steps import Steps
from tests.kafka.differential.values import Plain

CODECS: Final = ("NONE", "NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD")

UNKNOWN_CODEC: Final = [22, 7]
"""A byte of a batch, and what to write there instead."""


class LogSteps(Steps):
    """Produce, fetch, and the places in a log."""

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
            batch["timestamp"] = 4_000_000_000_000
        if self._rarely():
            batch["damage"] = [
                self._random.choice(([16, 1], [20, 0], UNKNOWN_CODEC, [60, 9], [22, 0x20], [22, 0x10]))
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
            (-1, -2, -3, 1_699_999_999_000, 1_700_000_000_001, 1_800_000_000_000, -4, -5, -6, -9)
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
