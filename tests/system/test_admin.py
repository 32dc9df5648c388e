"""The admin client against the embedded broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kafka
import pytest

from millstream.admin import (
    Admin,
    ConfigEntry,
    CreatedTopic,
    NewTopic,
    OffsetReset,
    PartitionLag,
)
from millstream.errors import (
    ClosedError,
    GroupIdNotFoundError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidRequestError,
    InvalidTopicError,
    MillstreamError,
    MisuseError,
    NoBrokersAvailableError,
    NonEmptyGroupError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from millstream.model import RESET_METADATA, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from millstream.producer import Producer
from tests.waiting import until


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def name() -> str:
    return f"a-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def topic(admin: Admin, name: str) -> str:
    admin.create_topic(name, partitions=2)
    return name


@pytest.fixture
def filled(admin: Admin, bootstrap_servers: str, topic: str) -> str:
    """Ten records in partition 0, a second apart, and three in partition 1."""
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for n in range(10):
            producer.send(topic, b"v", partition=0, timestamp=1_700_000_000_000 + n * 1000)
        for _ in range(3):
            producer.send(topic, b"v", partition=1, timestamp=1_700_000_000_000)
    return topic


# -- topics


def test_create_describe_list_delete(admin: Admin, name: str) -> None:
    made = admin.create_topic(
        name, partitions=3, configs={"retention.ms": 1000, "cleanup.policy": ["compact"]}
    )
    assert isinstance(made, CreatedTopic)
    assert (made.name, made.partitions, made.replication_factor) == (name, 3, 1)
    described = admin.describe_topic(name)
    assert described.topic_id == made.topic_id != ""
    assert [one.partition for one in described.partitions] == [0, 1, 2]
    assert described.replication_factor == 1
    assert not described.internal
    assert name in admin.list_topics()
    assert admin.describe_topics()[name] == described
    admin.delete_topics(name)
    assert name not in admin.list_topics()


def test_several_at_once(admin: Admin, name: str) -> None:
    made = admin.create_topics([f"{name}-1", NewTopic(f"{name}-2", partitions=4)])
    assert {key: topic.partitions for key, topic in made.items()} == {f"{name}-1": 1, f"{name}-2": 4}
    assert set(admin.describe_topics([f"{name}-1", f"{name}-2"])) == set(made)
    admin.delete_topics(made)
    assert not set(made) & set(admin.list_topics())


def test_what_exists_and_what_does_not(admin: Admin, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError, match=topic):
        admin.create_topic(topic)
    assert admin.create_topic(topic, exist_ok=True) is None
    for call in (admin.describe_topics, admin.delete_topics, admin.topic_configs):
        with pytest.raises(UnknownTopicOrPartitionError, match="no-such-topic"):
            call("no-such-topic")
    admin.delete_topics("no-such-topic", missing_ok=True)
    assert "no-such-topic" not in admin.list_topics(), "asking must not create"


def test_one_that_fails_does_not_stop_the_others(admin: Admin, topic: str, name: str) -> None:
    with pytest.raises(MillstreamError) as raised:
        admin.create_topics([topic, f"{name}-new", "bad/name"])
    failures: dict[str, MillstreamError] = raised.value.failures  # type: ignore[attr-defined]
    assert {key: type(error) for key, error in failures.items()} == {
        topic: TopicAlreadyExistsError,
        "bad/name": InvalidTopicError,
    }
    assert len(raised.value.__notes__) == 1
    until(lambda: f"{name}-new" in admin.list_topics(), "the broker has heard of it from the controller")


def test_validate_only(admin: Admin, name: str, topic: str) -> None:
    admin.create_topic(name, validate_only=True, exist_ok=True)
    admin.create_topic(f"{name}-2", validate_only=True)
    assert f"{name}-2" not in admin.list_topics()
    with pytest.raises(InvalidConfigError, match="nonsense"):
        admin.create_topic(f"{name}-2", configs={"nonsense": 1}, validate_only=True)
    admin.create_partitions(topic, 5, validate_only=True)
    assert len(admin.describe_topic(topic).partitions) == 2


def test_create_partitions(admin: Admin, topic: str) -> None:
    admin.create_partitions(topic, 3)
    assert len(admin.describe_topic(topic).partitions) == 3
    admin.add_partitions({topic: 4})
    assert len(admin.describe_topic(topic).partitions) == 4
    with pytest.raises(InvalidPartitionsError, match=topic):
        admin.create_partitions(topic, 2)
    with pytest.raises(MisuseError, match="give total"):
        admin.create_partitions(topic)


def test_internal_topics_are_listed_when_asked_for(admin: Admin, topic: str) -> None:
    admin.reset_offsets(f"g-{topic}", "latest", topics=topic)  # makes the topic of offsets
    assert "__consumer_offsets" not in admin.list_topics()
    assert "__consumer_offsets" in admin.list_topics(internal=True)
    assert "__consumer_offsets" not in admin.describe_topics()


def test_delete_records(admin: Admin, filled: str) -> None:
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
    assert admin.delete_records({first: 4, second: -1}) == {first: 4, second: 3}
    starts = admin.list_offsets(filled, "earliest")
    assert {key: found.offset for key, found in starts.items() if found} == {first: 4, second: 3}
    with pytest.raises(MillstreamError, match=f"{filled}-0"):
        admin.delete_records({first: 100})
    with pytest.raises(UnknownTopicOrPartitionError, match="has the partitions 0 to 1, not 7"):
        admin.delete_records({TopicPartition(filled, 7): 0})


# -- settings


def until_set(admin: Admin, topic: str, name: str, value: str | None) -> None:
    """Kafka answers when the controller has decided; its brokers follow a moment later. None: the default."""

    def look() -> bool:
        found = admin.topic_configs(topic)[name]
        return found.source != "topic" if value is None else found.value == value

    until(look, f"{name} is {value}")


def test_topic_configs(admin: Admin, topic: str) -> None:
    admin.alter_configs(topic, {"retention.ms": 5000, "unclean.leader.election.enable": True})
    until_set(admin, topic, "retention.ms", "5000")
    found = admin.topic_configs(topic, ["retention.ms", "cleanup.policy", "unclean.leader.election.enable"])
    assert isinstance(found["retention.ms"], ConfigEntry)
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("5000", "topic")
    assert found["unclean.leader.election.enable"].value == "true"
    assert found["cleanup.policy"].is_default
    admin.alter_configs(topic, {"retention.ms": None})
    until_set(admin, topic, "retention.ms", None)
    assert set(admin.topic_configs([topic])) == {topic}


def test_lists_grow_and_shrink(admin: Admin, topic: str) -> None:
    admin.alter_configs(topic, {}, append={"cleanup.policy": "compact"})
    until_set(admin, topic, "cleanup.policy", "delete,compact")
    admin.alter_configs(topic, {}, subtract={"cleanup.policy": "delete"})
    until_set(admin, topic, "cleanup.policy", "compact")


def test_settings_that_are_refused(admin: Admin, topic: str) -> None:
    with pytest.raises(InvalidConfigError, match="nonsense"):
        admin.alter_configs(topic, {"nonsense": 1})
    with pytest.raises(MisuseError, match="no setting to change"):
        admin.alter_configs(topic, {})
    admin.alter_configs(topic, {"retention.ms": 77}, validate_only=True)
    assert admin.topic_configs(topic)["retention.ms"].value != "77"


def test_broker_configs(admin: Admin) -> None:
    (broker,) = admin.describe_cluster().brokers
    assert admin.broker_configs(broker.node_id)["num.partitions"].value == "1"


def test_settings_of_a_running_broker_are_changed_unless_it_reads_them_at_its_start_only(
    admin: Admin,
) -> None:
    (broker,) = admin.describe_cluster().brokers
    number, name = broker.node_id, "log.cleaner.backoff.ms"

    def look() -> tuple[str | None, str]:
        entry = admin.broker_configs(number, [name])[name]
        return entry.value, entry.source

    before = look()
    if admin.broker_configs(number, [name])[name].read_only:
        with pytest.raises(InvalidRequestError, match=f"broker {number}: .* restart it to change them"):
            admin.alter_broker_configs(number, {name: 15_001})
    else:
        admin.alter_broker_configs(number, {name: 15_001}, validate_only=True)
        assert look() == before
        admin.alter_broker_configs(number, {name: 15_001})
        until(lambda: look() == ("15001", "broker"), "the broker has it")
        admin.alter_broker_configs(number, {name: None})
        until(lambda: look() == before, "it is back")
        with pytest.raises(InvalidRequestError, match=r"node\.id"):
            admin.alter_broker_configs(number, {"node.id": 7})
    assert look() == before


# -- offsets


def test_list_offsets(admin: Admin, filled: str) -> None:
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
    ends = admin.list_offsets(filled)
    assert {key: found.offset for key, found in ends.items() if found} == {first: 10, second: 3}
    assert admin.list_offsets(filled, isolation_level="read_committed") == ends, "no transaction is open"
    found = admin.list_offsets({first: 1_700_000_003_500, second: "earliest"})
    assert found[first] == OffsetAndTimestamp(4, 1_700_000_004_000, 0)
    start = found[second]
    assert start is not None and start.offset == 0
    newest = admin.list_offsets([first], "max_timestamp")[first]
    assert newest is not None and (newest.offset, newest.timestamp) == (9, 1_700_000_009_000)
    assert admin.list_offsets([first], datetime.now(UTC)) == {first: None}
    for wrong in ("soon", -5, 1.5):
        with pytest.raises(MisuseError, match="earliest, latest"):
            admin.list_offsets([first], wrong)  # type: ignore[arg-type]


# -- groups


def test_reset_every_way(admin: Admin, filled: str) -> None:
    group, first, second = f"g-{filled}", TopicPartition(filled, 0), TopicPartition(filled, 1)

    def to(*args: Any, **options: Any) -> tuple[int, ...]:
        admin.reset_offsets(group, *args, **options)
        return tuple(found.offset for _, found in sorted(admin.group_offsets(group).items()))

    assert to("earliest", topics=filled) == (0, 0)
    assert to("latest") == (10, 3)
    assert to(shift=-2) == (8, 1)
    assert to(shift=-1, topics=[first]) == (7, 1)
    assert to(1_700_000_005_000) == (5, 3), "where nothing is that late, the end"
    assert to(datetime.fromtimestamp(1_700_000_002, UTC), topics=[first]) == (2, 3)
    assert to(timedelta(days=1)) == (10, 3)
    assert to(offset=2) == (2, 2)
    assert to(offsets={second: 1}) == (2, 1)


def test_reset_tells_before_and_after_and_stays_inside_the_log(admin: Admin, filled: str) -> None:
    group, first = f"g-{filled}", TopicPartition(filled, 0)
    assert admin.reset_offsets(group, offset=4, topics=[first]) == {first: OffsetReset(filled, 0, None, 4)}
    planned = admin.reset_offsets(group, shift=100, topics=[first], dry_run=True)
    assert planned == {first: OffsetReset(filled, 0, 4, 10, clamped=True)}
    assert admin.group_offsets(group) == {first: OffsetAndMetadata(4, RESET_METADATA)}


def test_reset_needs_to_be_told_where_and_what(admin: Admin, topic: str) -> None:
    for options in ({}, {"to": "earliest", "shift": 1}):
        with pytest.raises(MisuseError, match="give exactly one of to, offset"):
            admin.reset_offsets("g", **options)  # type: ignore[arg-type]
    with pytest.raises(GroupIdNotFoundError, match="name the topics"):
        admin.reset_offsets(f"nobody-{topic}", "earliest")
    with pytest.raises(UnknownTopicOrPartitionError, match="no-such-topic"):
        admin.reset_offsets("g", "earliest", topics="no-such-topic")


@pytest.fixture
def member(bootstrap_servers: str, filled: str) -> Iterator[kafka.KafkaConsumer]:
    """A member of group g-TOPIC, of another make, that has read and committed everything."""
    consumer = kafka.KafkaConsumer(
        filled,
        bootstrap_servers=bootstrap_servers,
        group_id=f"g-{filled}",
        client_id="the-member",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    seen = 0
    while seen < 13:
        seen += sum(map(len, consumer.poll(timeout_ms=1000).values()))
    consumer.commit()
    yield consumer
    consumer.close()


def test_a_group_with_members(
    admin: Admin, bootstrap_servers: str, filled: str, member: kafka.KafkaConsumer
) -> None:
    group = f"g-{filled}"
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for _ in range(5):
            producer.send(filled, b"more", partition=0)
    described = admin.describe_group(group)
    assert (described.state, described.protocol_type, described.assignor) == ("Stable", "consumer", "range")
    assert described.coordinator is not None
    (only,) = described.members
    assert only.client_id == "the-member"
    assert only.topics == (filled,)
    assert only.assignment == (TopicPartition(filled, 0), TopicPartition(filled, 1))
    assert described.partitions == (
        PartitionLag(filled, 0, 10, 15, 5, "", only),
        PartitionLag(filled, 1, 3, 3, 0, "", only),
    )
    assert described.lag == 5
    assert admin.describe_groups([group], lag=False)[group].partitions == ()
    listed = {one.group_id: one for one in admin.list_groups()}
    assert (listed[group].state, listed[group].protocol_type) == ("Stable", "consumer")
    assert group not in {one.group_id for one in admin.list_groups(["Empty"])}
    for call in (
        lambda: admin.reset_offsets(group, "earliest"),
        lambda: admin.delete_groups(group),
        lambda: admin.delete_group_offsets(group, filled),
    ):
        with pytest.raises(MillstreamError, match=group):
            call()
    with pytest.raises(NonEmptyGroupError, match="the-member"):
        admin.reset_offsets(group, "earliest")
    member.close()
    assert admin.reset_offsets(group, "earliest")[TopicPartition(filled, 0)].before == 10


def test_deleting_groups_and_offsets(admin: Admin, filled: str) -> None:
    group, first, second = f"g-{filled}", TopicPartition(filled, 0), TopicPartition(filled, 1)
    admin.reset_offsets(group, "latest", topics=filled)
    admin.delete_group_offsets(group, [first])
    assert set(admin.group_offsets(group)) == {second}
    assert set(admin.group_offsets(group, [first])) == set()
    admin.delete_groups([group])
    for call in (admin.delete_groups, admin.describe_group):
        with pytest.raises(GroupIdNotFoundError, match=group):
            call(group)
    assert group not in {one.group_id for one in admin.list_groups()}


def test_a_group_of_a_topic_that_is_gone(admin: Admin, filled: str, name: str) -> None:
    group = f"g2-{filled}"
    admin.create_topic(f"{name}-stays")
    admin.reset_offsets(group, "latest", topics=[filled, f"{name}-stays"])
    admin.delete_topics(filled)
    gone = {one.end for one in admin.describe_group(group).partitions if one.topic == filled}
    assert gone <= {None}, "either forgotten with the topic, or without an end"
    assert set(admin.reset_offsets(group, "earliest")) == {TopicPartition(f"{name}-stays", 0)}


# -- the cluster


def test_describe_cluster(admin: Admin, bootstrap_servers: str) -> None:
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert [f"{one.host}:{one.port}" for one in cluster.brokers] == [bootstrap_servers]
    assert cluster.controller == cluster.brokers[0]


def test_describe_log_dirs(admin: Admin, filled: str) -> None:
    (directory,) = admin.describe_log_dirs()
    sizes = {(one.topic, one.partition): one.size_bytes for one in directory.replicas}
    assert sizes[filled, 0] > sizes[filled, 1] > 0
    assert directory.total_bytes >= directory.usable_bytes > 0
    assert admin.describe_log_dirs([directory.broker_id])[0].path == directory.path


# -- misuse and the end


def test_names_are_checked(admin: Admin) -> None:
    for wrong in ("", [None], [""]):
        with pytest.raises(MisuseError, match="is not the name of a"):
            admin.delete_topics(wrong)  # type: ignore[arg-type]


def test_no_broker() -> None:
    with (
        Admin(bootstrap_servers="127.0.0.1:1") as admin,
        pytest.raises(NoBrokersAvailableError, match=r"0\.2 seconds"),
    ):
        admin.list_topics(timeout=0.2)


def test_after_close(bootstrap_servers: str) -> None:
    admin = Admin({"bootstrap.servers": bootstrap_servers})
    assert admin.metrics()["requests_sent"] == 0
    admin.close()
    admin.close()
    with pytest.raises(ClosedError):
        admin.list_topics()
