"""A Spark session with Spark's own Kafka source in it, and what is loaded: topics full of JSON."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers import HERE
from millstream import Producer
from millstream.admin import Admin
from millstream.spark.runtime.session import session

JARS = HERE / ".kafka" / "spark"
ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
CORES = os.cpu_count() or 2
SIZE = 100
COUNTRIES = ("Brazil", "Kenya", "Norway", "India", "Iceland")
CHUNK = 500_000


def fetch_spark_jars() -> list[Path] | None:
    """Have Maven bring Spark's Kafka source, once; None where it cannot be had."""
    wanted = [JARS / f"{artifact.split(':')[1]}-{artifact.split(':')[2]}.jar" for artifact in ARTIFACTS]
    missing = [artifact for artifact, jar in zip(ARTIFACTS, wanted, strict=True) if not jar.exists()]
    if missing and shutil.which("mvn") is None:
        return None
    for artifact in missing:  # one by one, as Spark's pom names a mirror that is not reached
        command = [
            "mvn",
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={artifact}",
            f"-DoutputDirectory={JARS}",
        ]
        subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.DEVNULL)
    return wanted


def spark_session(jars: list[Path], place: Path) -> Any:
    """One session for all contestants, with settings that any of them could wish for."""
    return session(
        f"local[{CORES}]",
        **{
            "spark.driver.memory": "2g",
            "spark.jars": ",".join(map(str, jars)),
            "spark.local.dir": str(place),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": CORES,
            "spark.sql.warehouse.dir": str(place / "warehouse"),
        },
    )


def fill(servers: str, records: int, partitions: int) -> str:
    """A new topic with so many JSON records of 100 bytes, evenly spread; returns its name."""
    topic = f"loads-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=partitions)
    add(servers, topic, records, partitions)
    return topic


def add(servers: str, topic: str, records: int, partitions: int) -> None:
    """More records for a topic."""
    with Producer(bootstrap_servers=servers, acks="1", linger_ms=5, batch_size=1 << 20) as producer:
        for first in range(0, records, CHUNK):
            values = orders(first, min(CHUNK, records - first))
            where = pa.array(np.arange(len(values)) % partitions, pa.int32())
            producer.send_arrow(topic, pa.table({"value": values, "partition": where}))
        producer.flush()


def orders(first: int, count: int) -> pa.Array:
    """So many orders of 100 bytes each: an id, a country, a price, a quantity and a note."""
    numbers = pa.array(np.arange(first, first + count))
    countries = pa.DictionaryArray.from_arrays(
        pc.bit_wise_and(numbers, 3).cast(pa.int8()), pa.array(COUNTRIES)
    )
    cents = pc.add(pc.subtract(numbers, pc.multiply(pc.divide(numbers, 9973), 9973)), 1)
    text = pc.binary_join_element_wise(
        '{"id":',
        numbers.cast(pa.string()),
        ',"country":"',
        countries.cast(pa.string()),
        '","price":',
        pc.divide(cents.cast(pa.float64()), 100.0).cast(pa.string()),
        ',"quantity":',
        pc.bit_wise_and(numbers, 7).cast(pa.string()),
        ',"note":"',
        "",
    )
    return pc.binary_join_element_wise(pc.utf8_rpad(text, SIZE - 2, "."), '"}', "").cast(pa.binary())


def delete(servers: str, *topics: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics(topics)
