"""A user's program that writes with a killed worker: ``writer_program.py MASTER SERVERS TOPIC COPY PLACE``.

Sends the package to workers that do not have it, and writes rows to a topic from a cluster. The first task
of each worker leaves a file in PLACE and waits there for another, ``go``: by then a worker has been killed.
Then a stream copies the topic.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import millstream.spark as ms

ROWS = 4_000
PARTS = 4
WIDTH = 2_000
"""Wide enough that no buffer between Java and Python holds back a batch of rows."""
DEADLINE_SECONDS = 300.0


def main(master: str, servers: str, topic: str, copy: str, place: str) -> None:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
        .config("spark.python.authenticate.socketTimeout", "200s")  # a busy machine needs more than 15
        .getOrCreate()
    )
    ms.ship(spark)
    ms.register(spark)

    def pausing(batches: Iterator[Any]) -> Iterator[Any]:
        """Three batches of five, then a pause in the middle of the task's write, then the rest."""
        import os

        from pyspark import TaskContext

        context = TaskContext.get()
        first = context is not None and context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if number == 3 and first:
                Path(place, f"wrote-{os.getppid()}").touch()
                deadline = time.monotonic() + DEADLINE_SECONDS
                while not Path(place, "go").exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
            yield batch

    frame = (
        spark.range(0, ROWS, 1, PARTS)
        .selectExpr(f"lpad(id, {WIDTH}, '0') value")
        .mapInArrow(pausing, "value string")
    )
    frame.write.format("millstream").option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    stream(spark, servers, topic, copy, place)
    sys.stdout.write("WRITTEN\n")
    spark.stop()


def stream(spark: SparkSession, servers: str, topic: str, copy: str, place: str) -> None:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("millstream").options(**options).load().select("value")
    writer = frame.writeStream.format("millstream").options(**options).option("topic", copy)
    writer = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
