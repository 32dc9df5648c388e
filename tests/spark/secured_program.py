"""A user's program on a cluster and a secured broker: ``secured_program.py MASTER SETTINGS PLACE``.

SETTINGS is a file with the settings of clients as JSON. The source has the password among its options; the
load reads it from an environment variable, on each executor, which spark-defaults.conf sets: what the program
itself configures is in the command line of the driver's Java. At the end, before Spark stops, everything that
others can see of it is written to PLACE/seen.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pyspark.sql import SparkSession

import millstream.spark as ms
from tests.spark.spark_cluster import QUICK_JAVA, UNHURRIED

VARIABLE = "KAFKA_PASSWORD"
REST = (
    *("environment", "jobs", "stages?details=true", "sql?details=true&planDescription=true", "allexecutors"),
    *("storage/rdd", "version"),
)
PAGES = ("environment", "jobs", "stages", "storage", "executors", "SQL", "StreamingQuery")


def main(master: str, settings: dict[str, str], place: Path) -> None:
    seen = place / "seen"
    for directory in (seen, place / "events"):
        directory.mkdir(exist_ok=True)  # a busy machine may need a second attempt
    spark = session(master, place)
    ms.ship(spark)
    ms.register(spark)
    options = {f"kafka.{name}": value for name, value in settings.items()}
    options |= {"subscribe": "orders", "startingOffsets": "earliest"}
    frame = spark.read.format("millstream").options(**options).load()
    found = {"batch": frame.count()}
    plans = [frame._jdf.queryExecution().toString()]
    stream = spark.readStream.format("millstream").options(**options).load()
    writer = stream.writeStream.format("memory").queryName("found")
    query = (
        writer.option("checkpointLocation", str(place / f"checkpoint-{os.getpid()}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found["stream"] = spark.sql("SELECT * FROM found").count()
    plans.append(query._jsq.explainInternal(True))
    plans += [json.dumps(progress, default=str) for progress in query.recentProgress]
    report = load(spark, settings, place)
    found["loaded"] = report.loaded
    (seen / "plans").write_text("\n".join(plans))
    (seen / "report").write_text(f"{report!r} {report}")
    for name, text in looks(spark):
        (seen / name).write_text(text)
    sys.stdout.write(f"FOUND {json.dumps(found)}\n")
    spark.stop()


def session(master: str, place: Path) -> SparkSession:
    settings: dict[str, str] = {
        **UNHURRIED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.logConf": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (place / "events").as_uri(),
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    return spark


def load(spark: SparkSession, settings: dict[str, str], place: Path) -> Any:
    properties = {**settings, "sasl.password": f"${{env:{VARIABLE}}}"}
    servers = properties.pop("bootstrap.servers")
    return ms.Load(
        spark,
        topics=["orders"],
        group_id="into-delta",
        bootstrap_servers=servers,
        sink=ms.DeltaSink(place / "orders"),
        schema="id LONG",
        properties=properties,
    ).run_once()


def looks(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """What the UI, its REST and the list of processes show."""
    context = spark.sparkContext
    for path in REST:
        if path == "version":
            yield "rest-version", get(f"{context.uiWebUrl}/api/v1/version")
        else:
            name = path.partition("?")[0].replace("/", "-")
            yield (
                f"rest-{name}",
                get(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{path}"),
            )
    for page in PAGES:
        yield f"page-{page}", get(f"{context.uiWebUrl}/{page}/")
    executions = json.loads(get(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/sql"))
    for execution in executions:
        number = execution["id"]
        yield f"page-SQL-{number}", get(f"{context.uiWebUrl}/SQL/execution/?id={number}")
    yield "processes", "\n".join(command_lines())


def get(address: str) -> str:
    with urlopen(address, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("millstream").setLevel(logging.DEBUG)
    main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3]))
