"""Producers: those that the leaders of partitions remember."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.admin.call import AdminCall, Outcome, Partitions, by_topic, outcome_of
from millstream.admin.values import ProducerState
from millstream.client.targets import Node
from millstream.model import TopicPartition
from millstream.wire.messages.produce import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)


def describe_producers(
    call: AdminCall, partitions: Partitions
) -> dict[TopicPartition, tuple[ProducerState, ...]]:
    """The producers of each partition, as its leader knows them."""

    def ask(
        node_id: int, led: list[TopicPartition]
    ) -> Mapping[TopicPartition, Outcome[tuple[ProducerState, ...]]]:
        topics = [
            DescribeProducersTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic((one, one.partition) for one in led).items()
        ]
        response = call.send(
            Node(node_id), DescribeProducersResponse, DescribeProducersRequest(topics=topics)
        )
        return {
            (partition := TopicPartition(topic.name, result.partition_index)): outcome_of(
                tuple(map(_state, result.active_producers)),
                result.error_code,
                f"{partition}",
                result.error_message,
            )
            for topic in response.topics
            for result in topic.partitions
        }

    return call.each_by_leader(call.partitions(partitions), ask)


def _state(producer: ActiveProducer) -> ProducerState:
    return ProducerState(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
    )
