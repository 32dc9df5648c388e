"""What the broker answers where a principal may not: Kafka's error codes, by item, and nothing leaked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import ErrorCode
from millstream.wire.messages.acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from millstream.wire.messages.cluster import ElectLeadersRequest, ElectLeadersResponse
from millstream.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.wire.messages.group_admin import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from millstream.wire.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from millstream.wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse, ProduceResponse
from millstream.wire.messages.topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.system.raw_client import RawClient, produce_request
from tests.system.secured import AUTHORIZER, make_certificates, secured_broker
from tests.system.test_security_attacks import log_in

TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, WRITE, CREATE, DESCRIBE = 3, 4, 5, 8
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    with secured_broker(
        certificates,
        "SASL_PLAINTEXT://127.0.0.1:0",
        authorizer_class_name=AUTHORIZER,
        super_users="User:admin",
    ) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(address: str) -> Iterator[RawClient]:
    """The super user, with two topics and a group that committed an offset of each."""
    with RawClient(address) as client:
        assert log_in(client).error_code == 0
        for topic in ("mine", "theirs"):
            client.create_topic(topic)
            assert client.produce(topic, b"x").error_code == 0
        committed = client.call(commit("readers", "mine", "theirs"), 9, OffsetCommitResponse)
        assert [each.error_code for topic in committed.topics for each in topic.partitions] == [0, 0]
        yield client


@pytest.fixture
def ann(address: str, admin: RawClient) -> Iterator[RawClient]:
    """May read, write and describe ``mine``, and read the group ``readers``."""
    for kind, name, operation in ((TOPIC, "mine", READ), (TOPIC, "mine", WRITE), (GROUP, "readers", READ)):
        allow(admin, kind, name, operation)
    with RawClient(address) as client:
        assert log_in(client, "ann", "ann-secret").error_code == 0
        yield client


def allow(admin: RawClient, kind: int, name: str, operation: int) -> None:
    rule = AclCreation(
        resource_type=kind,
        resource_name=name,
        principal="User:ann",
        host="*",
        operation=operation,
        permission_type=3,
    )
    (result,) = admin.call(CreateAclsRequest(creations=[rule]), 3, CreateAclsResponse).results
    assert result.error_code == 0, result.error_message


def commit(group: str, *topics: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    return OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition]) for topic in topics],
    )


def topic_id(client: RawClient, topic: str) -> bytes:
    return client.metadata(topic).topics[0].topic_id


def test_metadata_hides_or_refuses_topics(ann: RawClient) -> None:
    assert [topic.name for topic in ann.metadata().topics] == ["mine"]
    by_name = {topic.name: topic for topic in ann.metadata("mine", "theirs", "missing").topics}
    assert {name: topic.error_code for name, topic in by_name.items()} == {
        "mine": 0,
        "theirs": REFUSED,
        "missing": REFUSED,
    }, "whether a topic exists is not told"
    assert by_name["theirs"].topic_id == bytes(16)
    oldest = MetadataRequest(topics=[MetadataRequestTopic(name="theirs")])
    answer = ann.call(oldest, 0, MetadataResponse)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("theirs", REFUSED)]


def test_a_topic_by_its_id_is_refused_without_its_name(ann: RawClient, admin: RawClient) -> None:
    wanted = MetadataRequestTopic(name=None, topic_id=topic_id(admin, "theirs"))
    (found,) = ann.call(MetadataRequest(topics=[wanted]), 12, MetadataResponse).topics
    assert (found.error_code, found.name) == (REFUSED, None)


def test_topics_are_not_created_for_those_who_may_not(ann: RawClient, admin: RawClient) -> None:
    allow(admin, TOPIC, "new", DESCRIBE)
    (refused,) = ann.metadata("new", create=True).topics
    assert refused.error_code == REFUSED
    allow(admin, TOPIC, "new", CREATE)
    (created,) = ann.metadata("new", create=True).topics
    assert created.error_code == 0


def test_pages_of_topics_tell_no_hidden_name(ann: RawClient) -> None:
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1)
    answer = ann.call(request, 0, DescribeTopicPartitionsResponse)
    seen = {topic.name for topic in answer.topics}
    if answer.next_cursor is not None:
        seen.add(answer.next_cursor.topic_name)
    assert "theirs" not in seen and "mine" in seen


def test_produce_and_fetch_are_refused_by_topic(ann: RawClient, admin: RawClient) -> None:
    request = produce_request("theirs", [b"x"])
    request.topic_data += produce_request("mine", [b"y"]).topic_data
    answer = ann.call(request, 9, ProduceResponse)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"theirs": REFUSED, "mine": 0}
    assert ann.fetch("mine").error_code == 0
    refused = ann.fetch("theirs")
    assert (refused.error_code, len(refused.records or b"")) == (REFUSED, 0)
    assert admin.fetch("theirs").high_watermark == 1, "nothing was written"


def test_produce_without_acks_closes_the_connection_of_who_may_not(address: str, ann: RawClient) -> None:
    with RawClient(address) as client:
        log_in(client, "ann", "ann-secret")
        client.send(produce_request("theirs", [b"x"], acks=0), 9)
        assert client.is_closed_by_peer()


def test_offsets_need_the_group_and_the_topics(ann: RawClient, admin: RawClient) -> None:
    answer = ann.call(commit("readers", "mine", "theirs"), 9, OffsetCommitResponse)
    codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert codes == {"mine": 0, "theirs": REFUSED}
    answer = ann.call(commit("others", "mine"), 9, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    by_id = commit("readers", "")
    by_id.topics[0].topic_id = topic_id(admin, "theirs")
    (refused,) = ann.call(by_id, 10, OffsetCommitResponse).topics
    assert (refused.topic_id, refused.partitions[0].error_code) == (by_id.topics[0].topic_id, REFUSED)


def test_committed_offsets_of_hidden_topics_are_not_told(ann: RawClient) -> None:
    everything = OffsetFetchRequestGroup(group_id="readers", topics=None)
    named = OffsetFetchRequestGroup(
        group_id="readers", topics=[OffsetFetchRequestTopics(name="theirs", partition_indexes=[0])]
    )
    other = OffsetFetchRequestGroup(group_id="others", topics=None)
    (found,) = ann.call(OffsetFetchRequest(groups=[everything]), 8, OffsetFetchResponse).groups
    assert [topic.name for topic in found.topics] == ["mine"]
    (found,) = ann.call(OffsetFetchRequest(groups=[named]), 8, OffsetFetchResponse).groups
    assert found.topics[0].partitions[0].error_code == REFUSED
    (found,) = ann.call(OffsetFetchRequest(groups=[other]), 8, OffsetFetchResponse).groups
    assert found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    nothing = OffsetFetchRequestGroup(group_id="readers", topics=[])
    twice = ann.call(OffsetFetchRequest(groups=[everything, nothing]), 8, OffsetFetchResponse).groups
    assert "theirs" not in [topic.name for group in twice for topic in group.topics]


def test_groups_are_refused_or_hidden(ann: RawClient, admin: RawClient) -> None:
    admin.call(commit("others", "mine"), 9, OffsetCommitResponse)
    listed = ann.call(ListGroupsRequest(), 4, ListGroupsResponse)
    assert [group.group_id for group in listed.groups] == ["readers"]
    request = DescribeGroupsRequest(groups=["readers", "others"], include_authorized_operations=True)
    described = {group.group_id: group for group in ann.call(request, 5, DescribeGroupsResponse).groups}
    assert described["others"].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert described["readers"].authorized_operations == 1 << READ | 1 << DESCRIBE
    heartbeat = HeartbeatRequest(group_id="others", generation_id=1, member_id="m")
    assert ann.call(heartbeat, 4, HeartbeatResponse).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["readers", "others"])
    found = ann.call(find, 4, FindCoordinatorResponse)
    assert {each.key: each.error_code for each in found.coordinators} == {
        "readers": 0,
        "others": ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }


def test_the_cluster_needs_permissions_of_its_own(ann: RawClient) -> None:
    rules = ann.call(
        CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=TOPIC,
                    resource_name="theirs",
                    principal="User:ann",
                    host="*",
                    operation=2,
                    permission_type=3,
                )
            ]
        ),
        3,
        CreateAclsResponse,
    )
    assert rules.results[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    election = ann.call(ElectLeadersRequest(topic_partitions=None), 2, ElectLeadersResponse)
    assert election.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    described = ann.call(
        DescribeClusterRequest(include_cluster_authorized_operations=True), 0, DescribeClusterResponse
    )
    assert (described.error_code, described.cluster_authorized_operations) == (0, 0)


def test_authorized_operations_of_topics(ann: RawClient) -> None:
    wanted = MetadataRequest(
        topics=[MetadataRequestTopic(name="mine")], include_topic_authorized_operations=True
    )
    (topic,) = ann.call(wanted, 12, MetadataResponse).topics
    assert topic.topic_authorized_operations == 1 << READ | 1 << WRITE | 1 << DESCRIBE


def test_settings_and_deletions_are_refused_by_resource(ann: RawClient, admin: RawClient) -> None:
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name="mine", configuration_keys=None),
        DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
    ]
    answer = ann.call(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse)
    assert [each.error_code for each in answer.results] == [
        REFUSED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ]
    states = [DeleteTopicState(name="mine"), DeleteTopicState(topic_id=topic_id(admin, "theirs"))]
    deleted = ann.call(DeleteTopicsRequest(topics=states, timeout_ms=1000), 6, DeleteTopicsResponse)
    assert {(each.name, each.error_code) for each in deleted.responses} == {
        ("mine", REFUSED),
        (None, REFUSED),
    }


def test_the_brokers_settings_show_no_secret(admin: RawClient) -> None:
    own = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    (found,) = admin.call(DescribeConfigsRequest(resources=[own]), 4, DescribeConfigsResponse).results
    values = {entry.name: entry.value for entry in found.configs}
    assert "super.users" in values and "sasl.jaas.config" not in values
    assert not any("secret" in (value or "") for value in values.values())


def test_a_writer_of_any_topic_may_be_idempotent(ann: RawClient, address: str) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert ann.call(request, 4, InitProducerIdResponse).error_code == 0
    with RawClient(address) as bob:
        log_in(bob, "bob", "bob-secret")
        answer = bob.call(request, 4, InitProducerIdResponse)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
