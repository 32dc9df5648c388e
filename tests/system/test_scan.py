"""``scan``: exactly a range of a topic, by every kind of bound; and what is wrong is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from millstream import Admin, Consumer, Producer, TopicPartition, scan
from millstream.errors import (
    ClosedError,
    ConfigError,
    DataLostError,
    DeserializationError,
    UnknownTopicOrPartitionError,
)
from tests.conftest import NewTopic

Fill = Callable[..., None]


@pytest.fixture
def fill(producer: Producer) -> Fill:
    def fill(
        topic: str, count: int, partition: int = 0, value: Callable[[int], bytes | None] | None = None
    ) -> None:
        """Records whose timestamps are 1000 times their number."""
        make = value or (lambda number: b"v%d" % number)
        sent = [
            producer.send(topic, make(n), key=b"k%d" % n, partition=partition, timestamp=1000 * n)
            for n in range(count)
        ]
        for each in sent:
            each.result(60)

    return fill


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def found(servers: str, topic: str, **options: Any) -> dict[int, list[int]]:
    """The offsets that a scan reads, by partition."""
    rows = scan(topic, bootstrap_servers=servers, **options).read_all()
    offsets: dict[int, list[int]] = {}
    for partition, offset in zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True):
        offsets.setdefault(partition, []).append(offset)
    return offsets


# -- what is read


def test_all_columns_with_their_types(
    bootstrap_servers: str, new_topic: NewTopic, producer: Producer
) -> None:
    topic = new_topic()
    producer.send(topic, b"value", key=b"key", timestamp=1_234, headers=[("a", b"1"), ("b", None)]).result(60)
    producer.send(topic, None, timestamp=5).result(60)
    rows = scan(topic, bootstrap_servers=bootstrap_servers, headers=True).read_all()
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        polled = consumer.poll_arrow(timeout=60, headers=True)
    assert rows.schema == polled.schema
    assert rows.to_pylist()[: polled.num_rows] == polled.to_pylist()
    assert rows["value"].to_pylist() == [b"value", None]


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        ("earliest", "latest", 0, 100),
        ("latest", "latest", 0, 0),
        (0, 1, 0, 1),
        (99, 100, 99, 100),
        (40, 40, 40, 40),
        (40, 10**6, 40, 100),
        (at(10), at(20), 10, 20),
        (at(10), "latest", 10, 100),
        ("earliest", at(10), 0, 10),
        (at(10), 10, 10, 10),
        (at(1000), "latest", 100, 100),
    ],
)
def test_bounds(
    bootstrap_servers: str, new_topic: NewTopic, fill: Fill, start: Any, end: Any, first: int, last: int
) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        fill(topic, 100, partition)
    expected = {n: list(range(first, last)) for n in range(2)} if first < last else {}
    assert found(bootstrap_servers, topic, start=start, end=end) == expected


def test_a_bound_for_each_partition(bootstrap_servers: str, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic(partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for partition in range(2):
        fill(topic, 10, partition)
    offsets = found(bootstrap_servers, topic, start={one: 3, two: "latest"}, end={one: 5, two: "latest"})
    assert offsets == {0: [3, 4]}
    assert found(bootstrap_servers, topic, partitions=[1], start={two: at(8)}) == {1: [8, 9]}
    with pytest.raises(ConfigError, match=f"start does not name {topic}-1: name every partition"):
        scan(topic, bootstrap_servers=bootstrap_servers, start={one: 3})
    with pytest.raises(ConfigError, match=f"end names {topic}-1, which is not read"):
        scan(topic, bootstrap_servers=bootstrap_servers, partitions=[0], end={one: 3, two: 3})
    with pytest.raises(ConfigError, match=r"end is 11 in .*-0, whose log ends at 10"):
        scan(topic, bootstrap_servers=bootstrap_servers, end={one: 11, two: 3})
    with pytest.raises(ConfigError, match=r"start is 11 in .*-0, whose log ends at 10"):
        scan(topic, bootstrap_servers=bootstrap_servers, start={one: 11, two: 3})


def test_committed_offsets_bound_it_and_the_group_stays_as_it_was(
    bootstrap_servers: str, new_topic: NewTopic, fill: Fill, admin: Admin, group: str
) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        fill(topic, 10, partition)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 4})
    left = found(bootstrap_servers, topic, start="committed", group_id=group)
    assert left == {0: [4, 5, 6, 7, 8, 9], 1: list(range(10))}, "nothing committed: nothing may be skipped"
    assert found(bootstrap_servers, topic, end="committed", group_id=group) == {0: [0, 1, 2, 3]}
    described = admin.describe_groups([group])[group]
    assert not described.members
    assert {
        each.partition: each.committed for each in described.partitions if each.committed is not None
    } == {0: 4}
    with pytest.raises(ConfigError, match="start=committed needs the group"):
        scan(topic, bootstrap_servers=bootstrap_servers, start="committed")


def test_it_ends_where_the_log_ended_when_it_was_made(
    bootstrap_servers: str, new_topic: NewTopic, fill: Fill
) -> None:
    topic = new_topic()
    fill(topic, 10)
    made = scan(topic, bootstrap_servers=bootstrap_servers)
    fill(topic, 10)
    assert made.read_all().num_rows == 10
    assert made.read_all().num_rows == 10, "it is read again from its start"
    assert [(each.start, each.end) for each in made.ranges] == [(0, 10)]


def test_empty_topics(bootstrap_servers: str, new_topic: NewTopic) -> None:
    made = scan(new_topic(partitions=3), bootstrap_servers=bootstrap_servers, value="json")
    assert made.read_all().num_rows == 0
    assert list(made) == [] and made.ranges == ()
    assert made.schema.names == ["_topic", "_partition", "_offset", "_timestamp", "_timestamp_type", "_key"]


# -- formats


def test_fields_of_json_are_columns(bootstrap_servers: str, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic()
    fill(topic, 3000, value=lambda n: None if n == 7 else b'{"id": %d, "tags": ["a"], "c": {"x": 0.5}}' % n)
    inferred = scan(topic, bootstrap_servers=bootstrap_servers, value="json", key="string").read_all()
    row = {
        "id": 2,
        "tags": ["a"],
        "c": {"x": 0.5},
        "_topic": topic,
        "_partition": 0,
        "_offset": 2,
        "_key": "k2",
    }
    assert {name: inferred.to_pylist()[2][name] for name in row} == row
    assert inferred.to_pylist()[7]["id"] is None, "a tombstone is a row"
    given = scan(topic, bootstrap_servers=bootstrap_servers, value="json", schema="id LONG, more DOUBLE")
    assert given.schema.field("more").type == pa.float64()
    assert given.read_all()["id"].to_pylist()[6:9] == [6, None, 8]
    arrow = scan(
        topic, bootstrap_servers=bootstrap_servers, value="json", schema=pa.schema([("id", pa.int32())])
    )
    assert arrow.read_all()["id"].type == pa.int32()


def test_csv_and_numbers(bootstrap_servers: str, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic()
    fill(topic, 3, value=lambda n: b"%d;x%d" % (n, n))
    rows = scan(
        topic, bootstrap_servers=bootstrap_servers, value="csv", schema="a INT, b STRING", csv_delimiter=";"
    ).read_all()
    assert rows["a"].to_pylist() == [0, 1, 2] and rows["b"].to_pylist() == ["x0", "x1", "x2"]
    numbers = new_topic()
    fill(numbers, 3, value=lambda n: n.to_bytes(8, "big"))
    longs = scan(numbers, {"bootstrap.servers": bootstrap_servers}, value="long").read_all()
    assert longs["value"].type == pa.int64() and longs["value"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "options"), [("json", {"schema": "id LONG"}), ("string", {}), ("long", {})]
)
def test_a_bad_value_is_named_or_null(
    bootstrap_servers: str, new_topic: NewTopic, fill: Fill, value: str, options: Any
) -> None:
    topic = new_topic()
    good = {"json": b'{"id": 1}', "string": b"good", "long": bytes(8)}[value]
    fill(topic, 5000, value=lambda n: b"\xff{" if n == 4321 else good)
    with pytest.raises(DeserializationError, match=f"the value of {topic}-0 at offset 4321") as caught:
        scan(topic, bootstrap_servers=bootstrap_servers, value=value, **options).read_all()
    assert caught.value.offset == 4321 and caught.value.raw == b"\xff{"
    rows = scan(
        topic, bootstrap_servers=bootstrap_servers, value=value, bad_values="null", **options
    ).read_all()
    column = rows["id" if value == "json" else "value"]
    assert column.null_count == 1 and column[4321].as_py() is None and len(column) == 5000


# -- slips


def test_slips_are_told_in_a_sentence(bootstrap_servers: str, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic()
    fill(topic, 3)
    for options, told in [
        ({"value": "jason"}, "did you mean json"),
        ({"value": "uuid"}, "it must be one of bytes"),
        ({"value": "csv"}, "value=csv needs a schema"),
        ({"value": "avro"}, "avro_schema"),
        ({"schema": "id LONG"}, "schema is not for value=bytes"),
        ({"value": "json", "schema": "id LNG"}, "did you mean LONG"),
        ({"value": "json", "schema": "_offset LONG"}, "the values have a field _offset"),
        ({"value": "json"}, "none of the first values"),
        ({"start": 4}, "the longest partition ends at 3"),
        ({"start": 2, "end": 1}, "is after end"),
        ({"start": datetime(2026, 1, 1)}, "without a zone"),
        ({"partitions": []}, "a list of numbers"),
        ({"partitions": 5}, "a list of numbers"),
        ({"value": "json", "schema": ""}, "needs a schema"),
        ({"bad_values": "skip"}, "fail or null"),
        ({"threads": 0}, "threads is 0"),
        ({"auto_offset_reset": "latest"}, "use start"),
        ({"value_deserializer": "json"}, "use value"),
        ({"isolation_levl": "x"}, "isolation_level"),
    ]:
        with pytest.raises(ConfigError, match=told):
            scan(topic, bootstrap_servers=bootstrap_servers, **options)  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicOrPartitionError, match="has the partitions 0 to 0, not 7"):
        scan(topic, bootstrap_servers=bootstrap_servers, partitions=[7])
    with pytest.raises(
        UnknownTopicOrPartitionError, match=f"there is no topic '{topic}s': did you mean '{topic}'"
    ):
        scan(topic + "s", bootstrap_servers=bootstrap_servers)


def test_what_retention_took_is_an_error_unless_accepted(
    bootstrap_servers: str, new_topic: NewTopic, fill: Fill, admin: Admin
) -> None:
    topic = new_topic()
    fill(topic, 10)
    early = scan(topic, bootstrap_servers=bootstrap_servers)
    admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(
        DataLostError, match=r'the log starts at 4\. Start at what is left with start="earliest"'
    ):
        scan(topic, bootstrap_servers=bootstrap_servers, start=0)
    with pytest.raises(DataLostError, match="the log starts at 4"):
        early.read_all()
    assert found(bootstrap_servers, topic) == {0: [4, 5, 6, 7, 8, 9]}
    assert found(bootstrap_servers, topic, start=1, fail_on_data_loss=False) == {0: [4, 5, 6, 7, 8, 9]}


# -- Arrow's other users


def test_polars_pandas_and_duckdb(bootstrap_servers: str, new_topic: NewTopic, fill: Fill) -> None:
    import duckdb
    import polars

    topic = new_topic(partitions=2)
    for partition in range(2):
        fill(topic, 50, partition, value=lambda n: b'{"id": %d}' % n)
    orders = scan(topic, bootstrap_servers=bootstrap_servers, value="json")
    assert orders.to_polars()["id"].sum() == 2 * 1225
    assert polars.DataFrame(orders).shape == (100, 7)
    assert orders.to_pandas()["id"].sum() == orders.read_pandas()["id"].sum() == 2 * 1225
    query = "SELECT _partition, count(*), sum(id) FROM orders WHERE id >= 10 GROUP BY 1 ORDER BY 1"
    for _ in range(2):  # a query is no reason to scan again
        assert duckdb.sql(query).fetchall() == [(0, 40, 1180), (1, 40, 1180)]
    assert duckdb.sql("SELECT count(*) FROM orders a JOIN orders b USING (_partition, id)").fetchall() == [
        (100,)
    ]
    reader = orders.to_reader()
    assert isinstance(reader, pa.RecordBatchReader) and reader.read_all().num_rows == 100


def test_steps_and_close(bootstrap_servers: str, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic()
    fill(topic, 100)
    with scan(topic, bootstrap_servers=bootstrap_servers, batch_rows=30) as orders:
        sizes = [orders.read_next_batch().num_rows]
        while sum(sizes) < 100:
            sizes.append(orders.read_next_batch().num_rows)
        assert sum(sizes) == 100 and max(sizes) <= 30
        with pytest.raises(StopIteration):
            orders.read_next_batch()
        reading = iter(orders)
        next(reading)
    with pytest.raises(ClosedError, match="closed while it was read"):
        list(reading)
    with pytest.raises(ClosedError, match="call scan\\(\\) again"):
        iter(orders)
