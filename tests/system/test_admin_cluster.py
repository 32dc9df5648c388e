"""What administrators rarely do: removing members, electing leaders, looking at producers and the quorum."""

from __future__ import annotations

import time

import pytest

from millstream.admin import Admin, ConfigResource
from millstream.errors import (
    GroupIdNotFoundError,
    MillstreamError,
    MisuseError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.cli_process import Cli
from tests.system.members import Member
from tests.waiting import until


def test_a_dead_static_member_is_removed_and_its_partitions_move(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    with Member(bootstrap_servers, group, [topic]) as stays:
        with Member(bootstrap_servers, group, [topic], group_instance_id="gone"):
            until(lambda: len(stays.owned) == 1, "both share the topic")
        assert len(admin.describe_group(group, lag=False).members) == 2, "a static member does not leave"
        assert admin.remove_members(group, instance_ids="gone", reason="its host is gone") == ["gone"]
        until(lambda: len(stays.owned) == 2, "the other has all partitions")
        with pytest.raises(UnknownMemberIdError, match="gone"):
            admin.remove_members(group, instance_ids=["gone"])


def test_members_are_removed_by_their_ids_or_all_at_once(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    with Member(bootstrap_servers, group, [topic], group_instance_id="static") as static:
        with Member(bootstrap_servers, group, [topic]) as dynamic:
            until(lambda: len(static.owned) == len(dynamic.owned) == 1, "both share the topic")
            ids = {each.member_id for each in admin.describe_group(group, lag=False).members}
            (removed,) = admin.remove_members(
                group, member_ids=[each for each in ids if not each.startswith("static")]
            )

            def replaced() -> bool:
                now = {each.member_id for each in admin.describe_group(group, lag=False).members}
                return removed not in now and len(now) == 2

            until(replaced, "a member that still runs joins again, with another id")
        until(lambda: len(static.owned) == 2, "the other has left")
    assert admin.remove_members(group) == ["static"]
    assert admin.describe_group(group, lag=False).members == ()
    assert admin.remove_members(group) == []


def test_members_of_no_group(admin: Admin, group: str) -> None:
    with pytest.raises(GroupIdNotFoundError, match=group):
        admin.remove_members(group)
    with pytest.raises(UnknownMemberIdError, match="nobody"):
        admin.remove_members(group, member_ids="nobody")
    with pytest.raises(MisuseError):
        admin.remove_members(group, instance_ids=[""])


def test_members_are_removed_from_the_command_line(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    cli, topic = Cli(bootstrap_servers), new_topic()
    with Member(bootstrap_servers, group, [topic], group_instance_id="host-7") as member:
        until(lambda: member.owned, "it reads")
    assert "give --instance-id" in cli.fails("group", "remove-members", group, code=2)
    assert cli.ok("group", "remove-members", group, "--instance-id", "host-7").lines == ["host-7"]
    assert "host-7" in cli.fails("group", "remove-members", group, "--instance-id", "host-7")
    found = cli.ok("group", "remove-members", group, "--all", "--json").json
    assert found == {"group": group, "removed": []}


def test_producers_of_a_partition(bootstrap_servers: str, admin: Admin, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    before_ms = time.time_ns() // 1_000_000
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for _ in range(3):
            producer.send(topic, b"v", partition=1).result()
    found = admin.describe_producers(topic)
    assert found[TopicPartition(topic, 0)] == ()
    (known,) = found[TopicPartition(topic, 1)]
    assert (known.epoch, known.last_sequence, known.transaction_start) == (0, 2, -1)
    assert known.producer_id >= 0
    assert known.last_timestamp >= before_ms
    assert admin.describe_producers([TopicPartition(topic, 1)]) == {TopicPartition(topic, 1): (known,)}
    with pytest.raises(UnknownTopicOrPartitionError, match="9"):
        admin.describe_producers([TopicPartition(topic, 9)])


def test_elections_where_every_leader_is_the_right_one(admin: Admin, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    assert admin.elect_leaders(topic) == []
    assert admin.elect_leaders([TopicPartition(topic, 1)], unclean=True) == []
    assert admin.elect_leaders() == []
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders([TopicPartition(topic, 7)])


def test_features_and_quorum(admin: Admin) -> None:
    features = admin.describe_features()
    assert features.finalized.keys() <= features.supported.keys()
    for name, level in features.finalized.items():
        lowest, highest = features.supported[name]
        assert lowest <= level <= highest
    quorum = admin.describe_quorum()
    assert quorum.leader_id in {each.node_id for each in quorum.voters}
    assert quorum.high_watermark >= 0


def test_what_has_settings(admin: Admin, new_topic: NewTopic) -> None:
    topic = new_topic()
    everything = admin.list_config_resources()
    assert ConfigResource("topic", topic) in everything
    (broker,) = [each for each in everything if each.type == "broker"]
    assert int(broker.name) == admin.describe_cluster().brokers[0].node_id
    assert {each.type for each in admin.list_config_resources(["topic", "broker"])} == {"topic", "broker"}
    assert admin.list_config_resources("client_metrics") == []
    with pytest.raises(MillstreamError, match="'topics' is not a type of resource: did you mean topic"):
        admin.list_config_resources("topics")
