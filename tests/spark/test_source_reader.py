"""Reading one range: exactly its records, whatever lies around and between them; and what is lost is said."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream import Admin, EmbeddedBroker, Producer, TopicPartition
from millstream.errors import DataLostError, MillstreamTimeoutError, MisuseError
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading import pool, reader, schema
from millstream.spark.reading.reader import read_range
from tests.conftest import NewTopic
from tests.kafka.brokers import apache_kafka_address
from tests.spark.conftest import Fill
from tests.waiting import SECONDS, until


def close_idle() -> None:
    """Close the consumers that this process keeps for the next task."""
    while pool._idle:
        pool._idle.pop()[2].close(timeout=1.0)


@pytest.fixture
def settings(bootstrap_servers: str) -> Iterator[dict[str, object]]:
    yield {"bootstrap.servers": bootstrap_servers}
    close_idle()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks lost counts as lost at once."""
    monkeypatch.setattr(reader, "_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(reader, "_PATIENCE_SECONDS", 0.2)


def rows(settings: dict[str, object], part: OffsetRange, **options: Any) -> list[dict[str, Any]]:
    batches = list(read_range(settings, part, **options))
    found: list[dict[str, Any]] = pa.Table.from_batches(
        batches, schema.arrow_schema(_chosen(options))
    ).to_pylist()
    return found


def _chosen(options: dict[str, Any]) -> tuple[str, ...]:
    return schema.choose(options.get("columns"), headers=options.get("headers", False))


def offsets(settings: dict[str, object], part: OffsetRange, **options: Any) -> list[int]:
    return [row["offset"] for row in rows(settings, part, columns=["offset"], **options)]


def test_all_columns_with_their_types(
    settings: dict[str, object], new_topic: NewTopic, producer: Producer
) -> None:
    topic = new_topic()
    producer.send(topic, b"value", key=b"key", timestamp=1_234, headers=[("a", b"1"), ("b", None)]).result()
    producer.send(topic, None, key=None, timestamp=5).result()
    producer.send(topic, b"", key=b"", timestamp=0).result()
    [batch] = read_range(settings, OffsetRange(topic, 0, 0, 3), headers=True)
    assert batch.schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    found = batch.set_column(5, "timestamp", batch["timestamp"].cast(pa.int64())).to_pylist()
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    common = {"topic": topic, "partition": 0, "timestampType": 0}
    assert found == [
        {"key": b"key", "value": b"value", "offset": 0, "timestamp": 1_234_000, "headers": headers, **common},
        {"key": None, "value": None, "offset": 1, "timestamp": 5_000, "headers": None, **common},
        {"key": b"", "value": b"", "offset": 2, "timestamp": 0, "headers": None, **common},
    ]


def test_log_append_time(settings: dict[str, object], new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    fill(topic, 2)
    assert [row["timestampType"] for row in rows(settings, OffsetRange(topic, 0, 0, 2))] == [1, 1]


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 1000), (499, 500), (500, 1000), (999, 1000), (7, 7)])
def test_exactly_the_range(
    settings: dict[str, object], new_topic: NewTopic, fill: Fill, start: int, end: int
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 1000, partition=1)
    found = rows(settings, OffsetRange(topic, 1, start, end), columns=["offset", "value"])
    assert found == [{"offset": n, "value": b"v%d" % n} for n in range(start, end)]


def test_batches_are_no_larger_than_asked_for(
    settings: dict[str, object], new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 1000)
    sizes = [each.num_rows for each in read_range(settings, OffsetRange(topic, 0, 0, 990), batch_rows=300)]
    assert sum(sizes) == 990 and max(sizes) <= 300


def test_both_decoders_give_the_same(settings: dict[str, object], new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic()
    fill(topic, 6000)
    large = rows(settings, OffsetRange(topic, 0, 0, 6000), headers=True)
    small = [
        row
        for at in range(0, 6000, 500)
        for row in rows(settings, OffsetRange(topic, 0, at, at + 500), headers=True)
    ]
    assert large == small


def test_columns_that_nobody_asks_for_are_not_built(
    settings: dict[str, object], new_topic: NewTopic, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    fill(topic, 10)
    monkeypatch.setattr("millstream.spark.reading.batches.joined", None)
    found = rows(settings, OffsetRange(topic, 0, 0, 10), columns=["offset", "topic"])
    assert found[3] == {"offset": 3, "topic": topic}
    with pytest.raises(MisuseError, match="did you mean offset"):
        list(read_range(settings, OffsetRange(topic, 0, 0, 10), columns=["ofset"]))
    with pytest.raises(MisuseError, match="includeHeaders"):
        list(read_range(settings, OffsetRange(topic, 0, 0, 10), columns=["headers"]))


def test_a_consumer_is_kept_for_the_next_range(
    settings: dict[str, object], new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 10)
    fill(topic, 10, partition=1)
    assert offsets(settings, OffsetRange(topic, 0, 0, 10)) == list(range(10))
    [(_, _, kept)] = pool._idle
    assert kept.assignment() == frozenset(), "an idle consumer reads nothing"
    assert offsets(settings, OffsetRange(topic, 1, 4, 10)) == list(range(4, 10))
    assert [each for _, _, each in pool._idle] == [kept]


def test_whoever_has_enough_may_stop(settings: dict[str, object], new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic()
    fill(topic, 100)
    batches = read_range(settings, OffsetRange(topic, 0, 0, 100), batch_rows=10)
    assert next(batches).num_rows == 10
    batches.close()  # type: ignore[attr-defined]
    assert len(pool._idle) == 1
    assert offsets(settings, OffsetRange(topic, 0, 0, 100)) == list(range(100))


def test_a_topic_that_was_made_anew_is_not_mistaken_for_what_an_idle_consumer_knew(
    settings: dict[str, object], new_topic: NewTopic, admin: Admin, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 10)
    assert len(offsets(settings, OffsetRange(topic, 0, 0, 5))) == 5
    admin.delete_topics(topic)
    admin.create_topic(topic, partitions=1)
    fill(topic, 10, first=100)
    found = rows(settings, OffsetRange(topic, 0, 5, 10), columns=["value"])
    assert [row["value"] for row in found] == [b"v%d" % n for n in range(105, 110)]


# -- gaps


def test_compaction_leaves_gaps_which_are_no_loss(tmp_path: Path) -> None:
    broker_settings = {"log.cleaner.backoff.ms": 50, "log.segment.bytes": 20_000, "log.retention.ms": -1}
    with (
        EmbeddedBroker(tmp_path, settings=broker_settings) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.create_topic("latest", partitions=1, configs={"cleanup.policy": "compact"})
        with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=500) as producer:
            for number in range(3000):
                producer.send("latest", b"%d" % number, key=b"key-%d" % (number % 7))
        given: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
        whole = OffsetRange("latest", 0, 0, 3000)
        until(lambda: len(offsets(given, whole)) < 1500, "the log is compacted")
        found = offsets(given, whole)
        assert found == sorted(set(found)) and found[-1] == 2999
        gap = next(n for n in range(3000) if n not in found)
        assert offsets(given, OffsetRange("latest", 0, gap, gap + 1)) == []
        cut = [n for n in offsets(given, OffsetRange("latest", 0, 0, 2500)) if n not in found]
        assert cut == [], "what a poll brought beyond the end is left out"
        close_idle()


def test_markers_of_transactions_are_no_loss() -> None:
    """On Apache Kafka, as the embedded broker has no transactions yet."""
    servers = apache_kafka_address()
    topic = f"markers-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
        produce_in_transactions(servers, topic)
        given: dict[str, object] = {"bootstrap.servers": servers}
        # A marker is written a moment after the coordinator has answered.
        until(lambda: ends(admin, topic) == [8, 8], "three records and a marker, twice")
        whole = OffsetRange(topic, 0, 0, 8)
        assert offsets(given, whole) == [0, 1, 2, 4, 5, 6], "the last offset is a marker"
        committed = {**given, "isolation.level": "read_committed"}
        assert offsets(committed, whole) == [0, 1, 2], "the second was aborted"
        assert offsets(given, OffsetRange(topic, 0, 3, 4)) == []
        close_idle()
        admin.delete_topics(topic)


def ends(admin: Admin, topic: str) -> list[int]:
    """Where the log ends for everybody, and for those who read what is committed."""
    return [
        found.offset
        for level in ("read_uncommitted", "read_committed")
        for found in admin.list_offsets(topic, isolation_level=level).values()
        if found is not None
    ]


def produce_in_transactions(servers: str, topic: str) -> None:
    from confluent_kafka import Producer as Librdkafka

    producer = Librdkafka({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for outcome in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"x", partition=0)
        assert producer.flush(SECONDS) == 0
        outcome(SECONDS)


# -- loss


def test_what_retention_took_is_lost(
    settings: dict[str, object],
    new_topic: NewTopic,
    admin: Admin,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic()
    fill(topic, 10)
    admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(DataLostError, match="the log starts at 4") as caught:
        offsets(settings, OffsetRange(topic, 0, 1, 8))
    assert caught.value.ranges == ((topic, 0, 1, 4),)
    assert offsets(settings, OffsetRange(topic, 0, 1, 8), fail_on_data_loss=False) == [4, 5, 6, 7]
    assert f"{topic}-0 [1, 4) is lost" in caplog.text
    assert offsets(settings, OffsetRange(topic, 0, 1, 3), fail_on_data_loss=False) == []
    assert offsets(settings, OffsetRange(topic, 0, 4, 8)) == [4, 5, 6, 7]


@pytest.mark.usefixtures("impatient")
def test_a_log_that_ends_too_early_has_lost_the_rest(
    settings: dict[str, object], new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 10)
    with pytest.raises(DataLostError, match="the log ends at 10") as caught:
        offsets(settings, OffsetRange(topic, 0, 5, 20))
    assert caught.value.ranges == ((topic, 0, 10, 20),)
    assert offsets(settings, OffsetRange(topic, 0, 5, 20), fail_on_data_loss=False) == list(range(5, 10))
    with pytest.raises(DataLostError, match="the log ends at 10"):
        offsets(settings, OffsetRange(topic, 0, 15, 20))


@pytest.mark.usefixtures("impatient")
def test_what_is_slow_to_come_is_not_lost(
    settings: dict[str, object], new_topic: NewTopic, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log ends too early, but not before the records that are waited for."""
    topic = new_topic()
    fill(topic, 10)
    looks: list[str | None] = []
    missing, poll = reader._RangeScan._missing, reader._RangeScan._poll

    def looked(self: reader._RangeScan) -> str | None:
        looks.append(missing(self))
        return looks[-1]

    monkeypatch.setattr(reader._RangeScan, "_missing", looked)
    monkeypatch.setattr(reader._RangeScan, "_poll", lambda self: poll(self) if len(looks) >= 6 else ())
    assert offsets(settings, OffsetRange(topic, 0, 5, 20), fail_on_data_loss=False) == list(range(5, 10))
    assert looks[:6] == [None] * 6


def test_a_topic_that_is_gone_is_no_stall(settings: dict[str, object], new_topic: NewTopic) -> None:
    """``kafkaConsumer.pollTimeoutMs`` may be shorter than our own patience."""
    gone = OffsetRange(f"{new_topic()}-gone", 0, 0, 20)
    assert offsets(settings, gone, fail_on_data_loss=False, stall_seconds=1.0) == []
    with pytest.raises(DataLostError, match="no longer exists"):
        offsets(settings, gone, stall_seconds=1.0)


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_gone_has_lost_everything(
    settings: dict[str, object], new_topic: NewTopic, admin: Admin, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 10)
    assert len(offsets(settings, OffsetRange(topic, 0, 0, 10))) == 10
    admin.delete_topics(topic)
    with pytest.raises(DataLostError, match="no longer exists"):
        offsets(settings, OffsetRange(topic, 0, 0, 10))
    assert topic not in admin.list_topics(), "looking for it must not make it"


def test_who_waits_for_nothing_is_told_why(new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(MillstreamTimeoutError, match="seconds"):
        offsets(
            {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 300},
            OffsetRange(topic, 0, 0, 1),
            stall_seconds=0.5,
        )


def test_what_is_fetched_can_be_tuned(new_topic: NewTopic, settings: dict[str, object]) -> None:
    large, small = OffsetRange("t", 0, 0, 10**6), OffsetRange("t", 0, 0, 10)
    assert reader.consumer_settings(settings, large)["max.partition.fetch.bytes"] == 16 << 20
    assert reader.consumer_settings(settings, small)["max.partition.fetch.bytes"] == 1 << 20
    own = reader.consumer_settings({**settings, "max.partition.fetch.bytes": 5, "group.id": "g"}, large)
    assert own["max.partition.fetch.bytes"] == 5 and "group.id" not in own
    assert own["auto.offset.reset"] == "none", "never decided by anything else"
    mine: list[dict[str, object]] = [{}, {"fetch.max.wait.ms": 7}]
    waits = [reader.consumer_settings({**settings, **more}, large)["fetch.max.wait.ms"] for more in mine]
    assert waits == [10, 7], "a fetch behind the end of a range holds up the next task for so long"
