"""Reads a topic with Spark's own kafka source and with ours: ``peer_program.py JARS SERVERS TOPIC PLACE``.

Prints, for each set of options, what each of them found: columns and types, and the rows; what each says to
the scenarios; and what a stream read whose checkpoint went from Spark's source to ours and back.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from millstream.spark.runtime.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cases(topic: str) -> dict[str, dict[str, str]]:
    by_time = {topic: {"0": 2_000, "1": 0}}
    return {
        "all": {"subscribe": topic},
        "headers": {"subscribe": topic, "includeHeaders": "true"},
        "pattern": {"subscribePattern": topic[:-1] + "."},
        "assigned": {"assign": json.dumps({topic: [1]})},
        "offsets": {
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: {"0": 3, "1": -2}}),
            "endingOffsets": json.dumps({topic: {"0": 9, "1": -1}}),
        },
        "times": {"subscribe": topic, "startingTimestamp": "3000", "endingTimestamp": "9000"},
        "times of partitions": {"subscribe": topic, "startingOffsetsByTimestamp": json.dumps(by_time)},
        "split": {"subscribe": topic, "minPartitions": "7"},
        "limited": {"SUBSCRIBE": topic, "maxRecordsPerPartition": "4"},
    }


def read(spark: SparkSession, kind: str, servers: str, options: dict[str, str]) -> dict[str, Any]:
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", servers)
    frame = reader.options(**options).load()
    rows = frame.orderBy("topic", "partition", "offset").toJSON().collect()
    return {"types": frame.schema.simpleString(), "rows": rows}


def stream(spark: SparkSession, kind: str, servers: str, topic: str, place: str) -> None:
    reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    writer = frame.writeStream.format("parquet").option("path", f"{place}/table")
    writer = writer.option("checkpointLocation", f"{place}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def main(jars: str, servers: str, topic: str, place: str) -> None:
    from millstream import Admin, Producer
    from tests.spark.scenarios import SCENARIOS, Asked, answer
    from tests.spark.spark_cluster import UNHURRIED

    own = {
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.local.dir": place,
        "spark.sql.warehouse.dir": f"{place}/warehouse",
    }
    spark = session("local[2]", **UNHURRIED, **own)
    found = {
        name: [read(spark, kind, servers, options) for kind in ("kafka", "millstream")]
        for name, options in cases(topic).items()
    }
    with Producer(bootstrap_servers=servers) as producer, Admin(bootstrap_servers=servers) as admin:
        for kind in ("kafka", "millstream", "kafka"):
            stream(spark, kind, servers, topic, place)
            for number in range(5):
                producer.send(topic, b"later %d" % number, partition=0).result()
        formats = [Asked(spark, kind, servers, place, admin, producer) for kind in ("kafka", "millstream")]
        answers = {each.what: [answer(each.ask, asked) for asked in formats] for each in SCENARIOS}
    table = spark.read.parquet(f"{place}/table").select("partition", "offset").collect()
    continued = sorted((row["partition"], row["offset"]) for row in table)
    sys.stdout.write(f"FOUND {json.dumps({'cases': found, 'answers': answers, 'continued': continued})}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
