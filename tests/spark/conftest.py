"""What the tests on Spark share: one session for each worker, the broker, and records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from millstream import Producer
from millstream.spark.runtime.session import session
from tests.spark.spark_cluster import QUICK_JAVA, UNHURRIED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TIMEOUT_SECONDS = 600
"""Of a test, with what it shares with others: a busy machine takes a minute for what takes five seconds else,
and a test may start three processes of Java, one after the other.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a worker waits for Spark to start, and for the first processes of its tasks."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores that gives a task three tries, with the format ``millstream`` registered."""
    place = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # Spark's Python processes are none of pytest's, and find the tests' own modules by this.
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        spark = session(
            "local[2, 3]",
            **{
                **UNHURRIED,
                "spark.driver.extraJavaOptions": QUICK_JAVA,
                "spark.driver.memory": "1g",
                "spark.local.dir": str(place),
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.warehouse.dir": str(place / "warehouse"),
            },
        )
        yield spark
        spark.stop()


class Fill(Protocol):
    """Writes records with the values v0, v1, ... and the keys k0, k1, k2 in turns."""

    def __call__(self, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None: ...


@pytest.fixture(scope="session")
def fill(producer: Producer) -> Fill:
    def write(topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
        for number in range(first, first + count):
            producer.send(topic, b"v%d" % number, key=b"k%d" % (number % 3), partition=partition)
        producer.flush()

    return write


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for a stream's memory."""
    return str(tmp_path / "checkpoint")
