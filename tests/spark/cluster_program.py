"""A user's program on a Spark that is elsewhere: ``cluster_program.py MASTER SERVERS TOPIC CHECKPOINT``.

Sends the package to workers that do not have it, as docs/spark.md tells, reads the topic as a batch and as a
stream, and prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

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
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
    ms.ship(spark)
    ms.register(spark)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("millstream").options(**options).load()
    batch = frame.selectExpr("count(*)", "count(distinct partition, offset)", "sum(length(value))").first()
    assert batch is not None
    stream = spark.readStream.format("millstream").options(**options, **{"kafka.group.id": group}).load()
    writer = stream.writeStream.format("memory").queryName("found").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(90)
    streamed = spark.sql("SELECT count(*), count(DISTINCT partition, offset) FROM found").first()
    assert streamed is not None
    print("FOUND", json.dumps({"batch": list(batch), "stream": list(streamed)}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
