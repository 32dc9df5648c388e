"""Creating, growing and deleting topics, and deleting their oldest records."""

from __future__ import annotations

from millstream.wire.schema import (
    ZERO_UUID,
    Api,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uuid,
)

CREATE_TOPICS = Api(19, "CreateTopics", 2, 7, flexible=5)
DELETE_TOPICS = Api(20, "DeleteTopics", 1, 6, flexible=4)
CREATE_PARTITIONS = Api(37, "CreatePartitions", 0, 3, flexible=2, since="1.0")
DELETE_RECORDS = Api(21, "DeleteRecords", 0, 2, flexible=2)


class CreatableReplicaAssignment(Struct):
    """The brokers of a partition, if the client chooses them."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32())


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request, api=CREATE_TOPICS):
    """Create topics, or only validate the request."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(default=False)


class CreatableTopicConfigs(Struct):
    """One setting of the new topic."""

    name: str = string("5+", default="")
    value: str | None = string("5+", nullable="5+", default=None)
    read_only: bool = boolean("5+", default=False)
    config_source: int = int8("5+", default=-1)
    is_sensitive: bool = boolean("5+", default=False)


class CreatableTopicResult(Struct):
    """A created topic, or the error."""

    name: str = string()
    topic_id: bytes = uuid("7+", default=ZERO_UUID)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topic_config_error_code: int = int16("5+", tag=0, default=0)
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", default=[]
    )


class CreateTopicsResponse(Response, api=CREATE_TOPICS):
    """The result for each topic."""

    throttle_time_ms: int = int32(default=0)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class DeleteTopicState(Struct):
    """A topic by its name or by its id."""

    name: str | None = string("6+", nullable="6+", default=None, ignorable=False)
    topic_id: bytes = uuid("6+", default=ZERO_UUID, ignorable=False)


class DeleteTopicsRequest(Request, api=DELETE_TOPICS):
    """Delete topics: by name up to version 5, by name or id from version 6 on."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default=[], ignorable=False)
    topic_names: list[str] = array(string(), "0-5", default=[])
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+", default=ZERO_UUID)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None)


class DeleteTopicsResponse(Response, api=DELETE_TOPICS):
    """The result for each topic."""

    throttle_time_ms: int = int32(default=0)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32())


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Request, api=CREATE_PARTITIONS):
    """Grow topics to ``count`` partitions."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, api=CREATE_PARTITIONS):
    """The result for each topic."""

    throttle_time_ms: int = int32(default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


class DeleteRecordsPartition(Struct):
    """The new start offset of the log; -1 deletes all records."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request, api=DELETE_RECORDS):
    """Delete the oldest records of partitions."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Response, api=DELETE_RECORDS):
    """The start offset of each partition's log."""

    throttle_time_ms: int = int32(default=0)
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
