"""Handles Produce, InitProducerId and DescribeProducers: appends record batches to logs.

acks=0 gets no answer. acks=1 is answered when the batches are in the log, acks=all when they are on the disk,
after a sync that many requests share.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.broker.dispatch import handles
from millstream.broker.flusher import SyncableLog
from millstream.broker.log.validation import RecordsOutOfTimeError, RecordsWithoutKeyError
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import Partition, Topic
from millstream.broker.services import Services
from millstream.errors import BrokerError, CorruptBatch, ErrorCode, KafkaStorageError, UnsupportedMagic
from millstream.wire.messages.produce import (
    DESCRIBE_PRODUCERS,
    INIT_PRODUCER_ID,
    PRODUCE,
    ActiveProducer,
    BatchIndexAndErrorMessage,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from millstream.wire.records.batch_header import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    first_attributes,
)
from millstream.wire.records.codecs import Codec

ACKS_ALL: Final = -1
_ZSTD_VERSION: Final = 7
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_WITHOUT_LOG_START: Final = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""With any other error of an append, the answer has the log's start offset, as in Kafka."""
ADMIN_CLIENT_ID: Final = "__admin_client"
NO_TRANSACTIONS: Final = (
    "transactions are not supported yet by the embedded broker: leave transactional.id out, "
    "or point the client at Apache Kafka"
)


class BrokerProblem(NamedTuple):
    """An error code and its message."""

    code: int
    message: str | None = None


@handles(PRODUCE)
def produce(broker: Services, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Append the batches of every partition, each with its own result; answer according to ``acks``."""
    appended: list[tuple[Partition, PartitionProduceResponse]] = []
    unauthorized = _transaction_problem(request)
    responses = []
    for data in request.topic_data:
        topic, error = broker.topics.resolve(data.name, data.topic_id, by_id=context.version >= 13)
        refusal = _refusal(request) or _internal_problem(topic, context)
        answers = [
            _failed(one.index, unauthorized)
            if unauthorized
            else _answer_partition(
                broker, topic, error, _records_problem(one, context.version) or refusal, one, appended
            )
            for one in data.partition_data
        ]
        for answer in answers:
            if answer.error_code:
                context.count_error(answer.error_code)
        responses.append(_topic_response(data, answers))
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        _finish_without_answer(context, responses)
        return None
    if request.acks == ACKS_ALL and appended:
        _answer_when_durable(broker, context, response, appended)
        return None
    return response


def _refusal(request: ProduceRequest) -> BrokerProblem | None:
    if request.acks not in (ACKS_ALL, 0, 1):
        return BrokerProblem(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: must be 0, 1 or all (-1)"
        )
    if request.transactional_id is not None:
        return BrokerProblem(ErrorCode.UNSUPPORTED_VERSION, NO_TRANSACTIONS)
    return None


def _codec_problem(data: PartitionProduceData, version: int) -> BrokerProblem | None:
    """Refuse zstd in old versions, because readers of that age do not know it either (KIP-110)."""
    codec = first_attributes(data.records) & CODEC_MASK
    if version < _ZSTD_VERSION and codec not in tuple(Codec):
        return BrokerProblem(ErrorCode.CORRUPT_MESSAGE, f"there is no codec {codec}")
    if version >= _ZSTD_VERSION or codec != Codec.ZSTD:
        return None
    return BrokerProblem(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {_ZSTD_VERSION}, not {version}"
    )


def _transaction_problem(request: ProduceRequest) -> BrokerProblem | None:
    """Refuse the whole request, as in Kafka, if it has transactional batches but no transactional id."""
    if request.transactional_id is not None:
        return None
    for topic in request.topic_data:
        for one in topic.partition_data:
            if first_attributes(one.records) & TRANSACTIONAL_BIT:
                return BrokerProblem(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    return None


def _internal_problem(topic: Topic | None, context: RequestContext) -> BrokerProblem | None:
    """Refuse writes to internal topics, except from Kafka's admin tools."""
    if topic is None or not topic.is_internal or context.client_id == ADMIN_CLIENT_ID:
        return None
    return BrokerProblem(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is an internal topic: only the broker writes to it"
    )


def _answer_partition(
    broker: Services,
    topic: Topic | None,
    error: int,
    refusal: BrokerProblem | None,
    data: PartitionProduceData,
    appended: list[tuple[Partition, PartitionProduceResponse]],
) -> PartitionProduceResponse:
    """Append, unless the partition is unknown (reported first, as in Kafka) or the request is refused."""
    partition = topic.partition(data.index) if topic is not None else None
    if partition is None:
        return _failed(data.index, BrokerProblem(error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if refusal is not None:
        return _failed(data.index, refusal)
    answer = _append(broker, partition, data)
    if not answer.error_code:
        appended.append((partition, answer))
    return answer


def _records_problem(data: PartitionProduceData, version: int) -> BrokerProblem | None:
    """Check what needs no decoding, in Kafka's order; the log checks the rest."""
    if data.records is None or not len(data.records):
        return BrokerProblem(ErrorCode.INVALID_RECORD, "a produce request without records")
    if len(data.records) > BATCH_OVERHEAD and (magic := data.records[_MAGIC_AT]) != MAGIC:
        code = ErrorCode.INVALID_RECORD if magic < MAGIC else ErrorCode.CORRUPT_MESSAGE
        return BrokerProblem(code, f"a batch of format {magic}, not {MAGIC}")
    if problem := _codec_problem(data, version):
        return problem
    return _batch_problem(data)


def _batch_problem(data: PartitionProduceData) -> BrokerProblem | None:
    """Refuse anything but one whole batch, like Kafka: so that a retry is all or nothing."""
    length = int.from_bytes(data.records[_LENGTH_AT:LOG_OVERHEAD], "big", signed=True)
    size, given = LOG_OVERHEAD + length, len(data.records)
    if given < LOG_OVERHEAD or given < size:
        return BrokerProblem(ErrorCode.INVALID_RECORD, f"{given} bytes of a batch of {size}")
    if size < BATCH_OVERHEAD:
        return None  # the log refuses a length that no batch can have
    if given > size:
        return BrokerProblem(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    if int.from_bytes(data.records[:_LENGTH_AT], "big"):
        return BrokerProblem(ErrorCode.INVALID_RECORD, "a batch whose base offset is not 0")
    return None


def _append(broker: Services, partition: Partition, data: PartitionProduceData) -> PartitionProduceResponse:
    try:
        result = partition.append(data.records, broker.epoch_ms())
    except UnsupportedMagic as error:
        return _failed(data.index, BrokerProblem(ErrorCode.INVALID_RECORD, str(error)))
    except CorruptBatch as error:
        return _failed(data.index, BrokerProblem(ErrorCode.CORRUPT_MESSAGE, str(error)))
    except BrokerError as error:
        answer = _failed(data.index, BrokerProblem(error.code, error.detail or str(error)))
        if error.code not in _WITHOUT_LOG_START:
            answer.log_start_offset = partition.log.start_offset
        if isinstance(error, RecordsWithoutKeyError | RecordsOutOfTimeError):
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=words)
                for index, words in sorted(error.record_errors.items())
            ]
        return answer
    records = result.last_offset - result.base_offset + 1
    broker.metrics.records_in += records
    broker.metrics.topic_records_in.add(partition.topic, records)
    broker.metrics.topic_bytes_in.add(partition.topic, len(data.records))
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.start_offset,
    )


def _failed(index: int, problem: BrokerProblem) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=problem.code, base_offset=-1, error_message=problem.message
    )


def _topic_response(data: TopicProduceData, answers: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)


def _finish_without_answer(context: RequestContext, responses: list[TopicProduceResponse]) -> None:
    """End a request with acks=0. After an error, close the connection: the client refreshes its metadata."""
    failed = [p for t in responses for p in t.partition_responses if p.error_code]
    context.drop()
    if failed:
        context.close(
            f"produce with acks=0 failed with error {failed[0].error_code}: {failed[0].error_message}"
        )


def _answer_when_durable(
    broker: Services,
    context: RequestContext,
    response: ProduceResponse,
    appended: list[tuple[Partition, PartitionProduceResponse]],
) -> None:
    def done(failures: dict[SyncableLog, Exception]) -> None:
        for partition, answer in appended:
            error = failures.get(partition.log)
            if error is None:
                continue
            if not isinstance(error, BrokerError):
                message = f"the disk failed: {error}. Nothing was stored; check the broker's disk"
                error = KafkaStorageError(message)
            answer.error_code, answer.base_offset = error.code, -1
            answer.error_message = error.detail or str(error)
        context.reply(response)

    broker.flusher.when_durable((partition.log for partition, _ in appended), done)


@handles(INIT_PRODUCER_ID)
def init_producer_id(
    broker: Services, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """Assign a producer id that was never used in this data directory, or raise the epoch of one."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, producer_epoch=-1)
    producer_id, epoch = broker.producer_ids.next(request.producer_id, request.producer_epoch)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch)


@handles(DESCRIBE_PRODUCERS)
def describe_producers(
    broker: Services, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """List the producers whose sequences each partition remembers (KIP-664)."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[
                    _producers(broker.topics.partition(topic.name, index), index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _producers(partition: Partition | None, index: int) -> DescribeProducersPartitionResponse:
    if partition is None:
        return DescribeProducersPartitionResponse(
            partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, active_producers=[]
        )
    return DescribeProducersPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            ActiveProducer(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_append_ms,
                coordinator_epoch=-1,
            )
            for each in partition.log.producers()
        ],
    )
