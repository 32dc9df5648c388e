"""Topics that this client may not see: every call raises that, and none waits for its timeout."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from millstream import Admin, Consumer, TopicPartition
from millstream.errors import ErrorCode, TopicAuthorizationFailedError
from millstream.wire.messages.metadata import METADATA
from tests.kafka import brokers
from tests.kafka.frame_proxy import FrameProxy
from tests.kafka.refusals import Refusal

TOPICS = 1
"""Where the error is in the answer: at the topic."""
OFTEN = 10_000


@pytest.fixture(params=(brokers.EMBEDDED, brokers.APACHE_KAFKA))
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    with brokers.without_delay(request.param) as address:
        yield address


def test_all_calls_say_so(servers: str) -> None:
    name = f"unseen-{uuid.uuid4().hex[:8]}"
    partition = TopicPartition(name, 0)
    with FrameProxy(watches=True) as proxy, Admin(bootstrap_servers=servers) as admin:
        proxy.target = int(servers.rpartition(":")[2])
        admin.create_topic(name, partitions=1)
        proxy.refusal = Refusal(METADATA, ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, TOPICS, OFTEN)
        with Consumer(bootstrap_servers=proxy.address, client_id=name, group_id=name) as consumer:
            calls: list[Callable[[], object]] = [
                lambda: consumer.partitions_for(name),
                lambda: consumer.end_offsets([partition]),
                lambda: consumer.beginning_offsets([partition]),
                lambda: consumer.offsets_for_times({partition: 0}),
            ]
            for call in calls:
                with pytest.raises(TopicAuthorizationFailedError, match=name):
                    call()
            consumer.subscribe([name])
            with pytest.raises(TopicAuthorizationFailedError, match=name):
                consumer.poll(60)
            consumer.unsubscribe()
            consumer.assign([partition])
            with pytest.raises(TopicAuthorizationFailedError, match=name):
                consumer.poll(60)
            proxy.refusal = None
            assert consumer.partitions_for(name) == [partition], "once it is let in"
            assert consumer.end_offsets([partition]) == {partition: 0}
        admin.delete_topics(name)
