"""A user's program on a Spark that is elsewhere: ``cluster_program.py MASTER SERVERS TOPIC CHECKPOINT``.

Sends the package to workers that do not have it, as docs/spark.md tells, reads the topic as a batch and as a
stream, and prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import Row, SparkSession

import millstream.spark as ms


def main(master: str, servers: str, topic: str, checkpoint: str, group: str) -> None:
    builder = SparkSession.builder
    if master.startswith("sc://"):
        spark = builder.remote(master).getOrCreate()
    else:
        spark = (
            builder.master(master)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "512m")
            .config("spark.executor.memory", "512m")
            .config("spark.ui.enabled", "false")
            .config("spark.python.authenticate.socketTimeout", "200s")  # a busy machine needs more than 15
            .getOrCreate()
        )
    ms.ship(spark)
    ms.register(spark)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("millstream").options(**options).load()
    rows = frame.select("partition", "offset", "value").collect()
    stream = (
        spark.readStream.format("millstream")
        .options(**options, **{"kafka.group.id": group}, commitOffsets="true")
        .load()
    )
    writer = stream.writeStream.format("memory").queryName("found").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    streamed = spark.sql("SELECT partition, offset, value FROM found").collect()
    found = {"batch": sorted(map(_plain, rows)), "stream": sorted(map(_plain, streamed))}
    sys.stdout.write(f"FOUND {json.dumps(found)}\n")
    spark.stop()


def _plain(row: Row) -> tuple[int, int, str]:
    return row["partition"], row["offset"], bytes(row["value"]).decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
