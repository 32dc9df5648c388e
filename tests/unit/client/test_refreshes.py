"""Metadata asked of scripted brokers: shared, refreshed by age, and asked of another when one fails."""

from __future__ import annotations

import threading
from typing import Any

from millstream.client.blocking import BlockingCalls, Deadline
from millstream.errors import ErrorCode
from millstream.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.unit.client.fake_broker import FakeBroker, HangUp
from tests.unit.client.sending import client_of
from tests.waiting import SECONDS, until


def test_many_askers_share_one_request(broker: FakeBroker) -> None:
    gate = threading.Event()

    def slowly(request: Any) -> MetadataResponse:
        gate.wait(SECONDS)
        return broker.metadata()

    broker.handlers[MetadataRequest] = slowly
    with client_of(broker) as client:
        calls = BlockingCalls(client)
        threads = [
            threading.Thread(target=calls.refresh_metadata, args=([f"t{n}"], Deadline(SECONDS)))
            for n in range(10)
        ]
        for thread in threads:
            thread.start()
        until(
            lambda: len(client.metadata._waiting) + len(client.metadata._in_flight or ()) == 10,
            "all have asked",
        )
        gate.set()
        for thread in threads:
            thread.join(SECONDS)
    asked = broker.received(MetadataRequest)
    assert len(asked) <= 3
    names = {topic.name for request in asked for topic in request.topics}  # type: ignore[attr-defined]
    assert names == {f"t{n}" for n in range(10)}


def test_metadata_are_refreshed_by_age(broker: FakeBroker) -> None:
    with client_of(broker, metadata_max_age_ms=30) as client:
        BlockingCalls(client).refresh_metadata((), Deadline(SECONDS))
        until(lambda: client.metrics.metadata_refreshes >= 4, "metadata were refreshed by age")


def test_metadata_are_asked_of_another_broker_when_one_fails() -> None:
    with FakeBroker(1) as first, FakeBroker(2) as second, client_of(first, second) as client:
        first.peers = second.peers = [first, second]

        def hang_up(request: Any) -> None:
            raise HangUp

        calls = BlockingCalls(client)
        calls.refresh_metadata((), Deadline(SECONDS))
        first.handlers[MetadataRequest] = hang_up
        for _ in range(5):
            calls.refresh_metadata((), Deadline(SECONDS))


def test_askers_who_come_during_an_answer_are_not_forgotten(broker: FakeBroker) -> None:
    """While a tracked topic is missing the client asks again by itself: that must not swallow other asks."""

    def missing(request: Any) -> MetadataResponse:
        response = broker.metadata()
        response.topics = [
            MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=topic.name, partitions=[]
            )
            for topic in request.topics
        ]
        return response

    broker.handlers[MetadataRequest] = missing
    with client_of(broker) as client:
        calls = BlockingCalls(client)
        client.submit(lambda: client.metadata.track(["later"]))
        for _ in range(50):
            cluster = calls.refresh_metadata(["later"], Deadline(SECONDS))
            assert "later" in cluster.errors
        assert len(client.metadata._waiting) <= 2
