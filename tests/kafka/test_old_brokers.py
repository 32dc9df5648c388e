"""Brokers from before a feature: the user is told which feature, and which Kafka it needs.

A proxy makes the embedded broker look old: it lowers what ApiVersions shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from millstream import Admin, Consumer, EmbeddedBroker, Producer, TopicPartition
from millstream.errors import UnsupportedVersionError
from millstream.wire.messages.api_versions import API_VERSIONS
from millstream.wire.messages.cluster import DESCRIBE_QUORUM
from millstream.wire.messages.configs import INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES
from millstream.wire.messages.fetch import FETCH
from millstream.wire.messages.group_admin import DELETE_GROUPS
from millstream.wire.messages.group_offsets import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from millstream.wire.messages.groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from millstream.wire.messages.log_dirs import DESCRIBE_LOG_DIRS
from millstream.wire.messages.metadata import DESCRIBE_CLUSTER, METADATA
from millstream.wire.messages.offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from millstream.wire.messages.produce import DESCRIBE_PRODUCERS, PRODUCE
from millstream.wire.messages.topics import CREATE_PARTITIONS, DELETE_RECORDS
from millstream.wire.schema import Api
from tests.kafka.frame_proxy import FrameProxy
from tests.waiting import SECONDS

T0 = TopicPartition("t", 0)


@contextmanager
def old_broker(most: Mapping[int, int | None]) -> Iterator[str]:
    """The address of a broker with one topic, ``t``, that knows no more than this."""
    with FrameProxy(most) as proxy:
        listener = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with EmbeddedBroker(settings=listener) as broker:
            proxy.target = int(broker.bootstrap_servers.rpartition(":")[2])
            with Admin(bootstrap_servers=proxy.address) as admin:
                admin.create_topic("t", partitions=1)
            yield proxy.address


@pytest.mark.parametrize("api", [JOIN_GROUP, SYNC_GROUP, HEARTBEAT], ids=lambda api: api.name)
def test_static_membership(api: Api) -> None:
    last_without = {JOIN_GROUP: 4, SYNC_GROUP: 2, HEARTBEAT: 2}
    with (
        old_broker({api.key: last_without[api]}) as servers,
        Consumer(bootstrap_servers=servers, group_id="g", group_instance_id="i") as consumer,
    ):
        consumer.subscribe(["t"])
        with pytest.raises(UnsupportedVersionError, match=r"static membership.*2\.3"):
            _poll_until_an_error(consumer)


def test_a_dynamic_member_needs_none_of_it() -> None:
    most = {JOIN_GROUP.key: 2, SYNC_GROUP.key: 1, HEARTBEAT.key: 1, LEAVE_GROUP.key: 1}
    versions = {FETCH.key: 4, LIST_OFFSETS.key: 1, OFFSET_COMMIT.key: 3, METADATA.key: 4}
    older = {OFFSET_FETCH.key: 3, FIND_COORDINATOR.key: 1, PRODUCE.key: 3}
    with old_broker({**most, **versions, **older, OFFSET_FOR_LEADER_EPOCH.key: None}) as servers:
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"old").result(SECONDS)
        with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            assert [record.value for record in consumer.poll(SECONDS)] == [b"old"]
            consumer.commit()
            assert consumer.committed([T0])[T0].offset == 1  # type: ignore[union-attr]


def _poll_until_an_error(consumer: Consumer) -> None:
    for _ in range(int(SECONDS * 10)):
        consumer.poll(0.1)


@pytest.mark.parametrize(
    ("api", "call", "words"),
    [
        (DELETE_RECORDS, lambda admin: admin.delete_records({T0: 0}), r"DeleteRecords.*0\.11"),
        (CREATE_PARTITIONS, lambda admin: admin.create_partitions("t", 2), r"CreatePartitions.*1\.0"),
        (DELETE_GROUPS, lambda admin: admin.delete_groups("g"), r"DeleteGroups.*1\.1"),
        (
            OFFSET_DELETE,
            lambda admin: admin.delete_group_offsets("g", [T0]),
            r"OffsetDelete.*2\.4",
        ),
        (
            INCREMENTAL_ALTER_CONFIGS,
            lambda admin: admin.alter_configs("t", {"retention.ms": 1000}),
            r"IncrementalAlterConfigs.*2\.3",
        ),
        (DESCRIBE_CLUSTER, lambda admin: admin.describe_cluster(), r"DescribeCluster.*2\.8"),
        (DESCRIBE_LOG_DIRS, lambda admin: admin.describe_log_dirs(), r"DescribeLogDirs.*1\.0"),
        (DESCRIBE_PRODUCERS, lambda admin: admin.describe_producers([T0]), r"DescribeProducers.*2\.8"),
        (DESCRIBE_QUORUM, lambda admin: admin.describe_quorum(), r"DescribeQuorum.*3\.3"),
        (LIST_CONFIG_RESOURCES, lambda admin: admin.list_config_resources(), r"ListConfigResources.*4\.1"),
    ],
    ids=lambda value: value.name if isinstance(value, Api) else "",
)
def test_what_an_administrator_asks_for(api: Api, call: Callable[[Admin], object], words: str) -> None:
    with (
        old_broker({api.key: None}) as servers,
        Admin(bootstrap_servers=servers) as admin,
        pytest.raises(UnsupportedVersionError, match=words),
    ):
        call(admin)


def test_the_record_with_the_largest_timestamp() -> None:
    with (
        old_broker({LIST_OFFSETS.key: 6}) as servers,
        Admin(bootstrap_servers=servers) as admin,
        pytest.raises(UnsupportedVersionError, match=r"max_timestamp.*3\.0"),
    ):
        admin.list_offsets([T0], "max_timestamp")


@pytest.mark.parametrize(
    ("api", "highest", "call", "words"),
    [
        (LIST_CONFIG_RESOURCES, 0, lambda admin: admin.list_config_resources(), r"4\.1"),
        (API_VERSIONS, 2, lambda admin: admin.describe_features(), r"2\.7"),
        (LEAVE_GROUP, 2, lambda admin: admin.remove_members("g", member_ids="m"), r"2\.4"),
    ],
    ids=lambda value: value.name if isinstance(value, Api) else "",
)
def test_versions_that_cannot_say_it(
    api: Api, highest: int, call: Callable[[Admin], object], words: str
) -> None:
    with (
        old_broker({api.key: highest}) as servers,
        Admin(bootstrap_servers=servers) as admin,
        pytest.raises(UnsupportedVersionError, match=words),
    ):
        call(admin)
