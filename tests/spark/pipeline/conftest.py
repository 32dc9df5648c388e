"""What the tests of the pipeline share: a way to run a shaping over the records of a topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream import Admin, Consumer, Producer
from millstream.spark.load.pipeline.fused import PieceResult
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.settings import Shaping
from millstream.spark.planning.ranges import OffsetRange
from tests.spark.pipeline.file_writer import FileWriter, Found, read


@dataclass(frozen=True)
class Bench:
    """Records in a topic, and what a shaping makes of them."""

    spark: Any
    servers: str
    topic: str
    directory: Path

    @property
    def settings(self) -> dict[str, object]:
        return {"bootstrap.servers": self.servers}

    def send(self, values: Sequence[bytes | None], partition: int = 0, **more: Any) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            for number, value in enumerate(values):
                producer.send(self.topic, value, key=b"k%d" % number, partition=partition, **more)

    def ranges(self) -> list[OffsetRange]:
        with Consumer(bootstrap_servers=self.servers) as consumer:
            partitions = consumer.partitions_for(self.topic)
            ends = consumer.end_offsets(partitions)
        return [OffsetRange(where.topic, where.partition, 0, ends[where]) for where in sorted(partitions)]

    def results(self, shaping: Shaping, pieces: Sequence[OffsetRange] | None = None) -> list[PieceResult]:
        if pieces is None:
            pieces = list(self.ranges())
        pipeline = Pipeline(shaping)
        pipeline.tables(self.spark)
        writer = FileWriter(str(self.directory))
        return pipeline.run(self.spark, self.settings, pieces, writer, uuid.uuid4().hex)

    def load(self, pieces: Sequence[OffsetRange] | None = None, **shaping: Any) -> Found:
        return read(result.written for result in self.results(Shaping(**shaping), pieces))

    def tables(self, **shaping: Any) -> Any:
        return Pipeline(Shaping(**shaping)).tables(self.spark)


@pytest.fixture
def bench(spark: Any, bootstrap_servers: str, admin: Admin, tmp_path: Path) -> Iterator[Bench]:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin.create_topic(topic, partitions=2)
    yield Bench(spark, bootstrap_servers, topic, tmp_path)
    admin.delete_topics([topic])


def rows(table: pa.Table | None) -> list[dict[str, Any]]:
    return [] if table is None else table.to_pylist()
