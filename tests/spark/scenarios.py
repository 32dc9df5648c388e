"""Scenarios of Spark's own Kafka suites, asked of both formats: what each says is declared here, and tested.

The table in docs/spark.md is generated from ``SCENARIOS``, which ``test_source_peer`` checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.programs import ATTEMPTS, TOO_BUSY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Refused(Exception):  # noqa: N818 - it is a result
    """Spark raised an error: when."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One format in one session, with topics of its own."""

    spark: SparkSession
    kind: str
    servers: str
    place: str
    admin: Any
    producer: Any

    def topic(self, name: str, partitions: int = 1, records: int = 0) -> str:
        """A new topic with ``records`` in its first partition."""
        full = f"scenario-{self.kind}-{name}"
        self.admin.create_topic(full, partitions=partitions)
        self.fill(full, records)
        return full

    def fill(self, topic: str, records: int, partition: int = 0) -> None:
        for number in range(records):
            self.producer.send(topic, b"%d" % number, partition=partition)
        self.producer.flush()

    def read(self, **options: str) -> DataFrame:
        return self._load(self.spark.read, options)

    def _load(self, reader: Any, options: dict[str, str]) -> DataFrame:
        loaded = reader.format(self.kind).option("kafka.bootstrap.servers", self.servers).options(**options)
        try:
            frame: DataFrame = loaded.load()
        except Exception as error:  # each format has its own
            raise Refused("refused at load()") from error
        return frame

    def count(self, **options: str) -> int:
        frame = self.read(**options)
        try:
            return frame.count()
        except Exception as error:
            raise Refused("refused when it runs") from error

    def stream(self, run: str, **options: str) -> tuple[list[Any], Any]:
        """Run a stream to the end of what is there: the values, and the last progress with rows."""
        frame = self._load(self.spark.readStream, options)
        place = f"{self.place}/{self.kind}-{run}"
        writer = frame.selectExpr("CAST(value AS STRING) v").writeStream.format("parquet")
        writer = writer.option("path", f"{place}/table").option("checkpointLocation", f"{place}/checkpoint")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                query = writer.trigger(availableNow=True).start()
                query.awaitTermination()
                break
            except Exception as error:
                if attempt == ATTEMPTS or TOO_BUSY not in str(error):
                    raise Refused("refused at start()") from error
        values = sorted(int(row["v"]) for row in self.spark.read.parquet(f"{place}/table").collect())
        return values, [each for each in query.recentProgress if each["numInputRows"]]


def answer(ask: Callable[[Asked], object], asked: Asked) -> str:
    """What a format says to a scenario, in words."""
    try:
        return str(ask(asked))
    except Refused as refusal:
        return str(refusal)


# -- batches


def held(asked: Asked) -> object:
    topic = asked.topic("held", records=3)
    frame = asked.read(subscribe=topic)
    before = frame.count()
    asked.fill(topic, 2)
    return f"{before} rows, then {frame.count()}"


def reused(asked: Asked) -> object:
    frame = asked.read(subscribe=asked.topic("reused", records=3))
    return f"{frame.union(frame).count()} rows"


def searched(asked: Asked) -> object:
    asked.topic("searched-one", records=2)
    asked.topic("searched-two", records=3)
    return f"{asked.count(subscribePattern=f'{asked.kind}-searched')} rows"


def missing_partition(asked: Asked) -> object:
    topic = asked.topic("missing", records=2)
    return f"{asked.count(assign=json.dumps({topic: [0, 5]}))} rows"


def split(asked: Asked) -> object:
    topic = asked.topic("split", records=10)
    return f"{asked.read(subscribe=topic, minPartitions='4').rdd.getNumPartitions()} tasks"


def unknown_options(asked: Asked) -> object:
    topic = asked.topic("unknown", records=2)
    more = {"someOptionOfAJob": "1", "kafka.max.poll.records": "5", "kafka.metrics.num.samples": "3"}
    return f"{asked.count(subscribe=topic, checkpointLocation='/nowhere', **more)} rows"


def table(asked: Asked) -> object:
    topic = asked.topic("table", records=4)
    where = f"`kafka.bootstrap.servers` '{asked.servers}', subscribe '{topic}'"
    asked.spark.sql(f"CREATE TABLE scenario_{asked.kind} USING {asked.kind} OPTIONS ({where})")
    try:
        return f"{asked.spark.table(f'scenario_{asked.kind}').count()} rows"
    finally:
        asked.spark.sql(f"DROP TABLE scenario_{asked.kind}")


def offsets_of_others(asked: Asked) -> object:
    topic = asked.topic("mismatch", partitions=2, records=2)
    start, end = {topic: {"0": 0, "1": 0}}, {topic: {"0": 1}}
    return asked.count(subscribe=topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))


def end_before_start(asked: Asked) -> object:
    topic = asked.topic("backwards", records=5)
    start, end = {topic: {"0": 4}}, {topic: {"0": 2}}
    return asked.count(subscribe=topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))


def batch_from_latest(asked: Asked) -> object:
    return asked.count(subscribe=asked.topic("from-latest"), startingOffsets="latest")


# -- streams


def group_untouched(asked: Asked) -> object:
    group = f"scenario-{asked.kind}"
    topic = asked.topic("group", records=3)
    asked.stream("group", subscribe=topic, startingOffsets="earliest", **{"kafka.group.id": group})
    return f"{len(asked.admin.group_offsets(group))} offsets committed"


def stream_with_end(asked: Asked) -> object:
    topic = asked.topic("with-end")
    return asked.stream("with-end", subscribe=topic, endingOffsets="latest")


def refuses(**options: str) -> Callable[[Asked], object]:
    """What a stream and a batch with ``options`` say: both must refuse in the same way."""

    def ask(asked: Asked) -> object:
        return asked.stream(f"refused-{len(str(options))}", **options)

    return ask


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario: what is asked, and what Spark's source and this one say."""

    what: str
    ask: Callable[[Asked], object]
    spark: str
    ours: str
    why: str = ""


_SAME: Final = "refused at load()"
_NOT_TOLD: Final = "a Python source is not told at load() whether it is for a batch or a stream"

SCENARIOS: Final = (
    Scenario("a data frame that is used again after 2 new records", held, "3 rows, then 5", "3 rows, then 5"),
    Scenario("a data frame that is used twice in one query", reused, "6 rows", "6 rows"),
    Scenario("a pattern that is a part of two names", searched, "5 rows", "5 rows"),
    Scenario("`assign` with a partition that does not exist", missing_partition, "2 rows", "2 rows"),
    Scenario("`minPartitions=4` for one partition", split, "4 tasks", "4 tasks"),
    Scenario("unknown options, and settings of Java's client", unknown_options, "2 rows", "2 rows"),
    Scenario("`CREATE TABLE … USING`", table, "4 rows", "4 rows"),
    Scenario("start and end by offset for different partitions", offsets_of_others, _SAME, _SAME),
    Scenario("an end before the start", end_before_start, _SAME, _SAME),
    Scenario("a batch from `latest`", batch_from_latest, _SAME, "refused when it runs", _NOT_TOLD),
    Scenario("`kafka.group.id` alone", group_untouched, "0 offsets committed", "0 offsets committed"),
    Scenario("a stream with an end", stream_with_end, _SAME, "refused at start()", _NOT_TOLD),
    Scenario("nothing to read is named", refuses(), _SAME, _SAME),
    Scenario("two ways to read", refuses(subscribe="t", subscribePattern="t.*"), _SAME, _SAME),
    Scenario("an empty `subscribe`", refuses(subscribe=""), _SAME, _SAME),
    Scenario("an empty `subscribePattern`", refuses(subscribePattern=""), _SAME, _SAME),
    Scenario("an empty `assign`", refuses(assign=""), _SAME, _SAME),
    Scenario(
        "`minOffsetsPerTrigger` above `maxOffsetsPerTrigger`",
        refuses(subscribe="t", minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8"),
        _SAME,
        _SAME,
    ),
    Scenario(
        "`kafka.auto.offset.reset`, and other reserved settings",
        refuses(subscribe="t", **{"kafka.auto.offset.reset": "latest"}),
        _SAME,
        _SAME,
    ),
)
