"""Misuse raises: two threads, a closed consumer, mixed subscriptions, wrong settings and arguments."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest

from millstream.consumer import Consumer, RebalanceListener
from millstream.errors import (
    ClosedError,
    ConcurrentAccessError,
    ConfigError,
    ConsumerClosedError,
    MillstreamError,
    MisuseError,
    WakeupError,
)
from millstream.model import TopicPartition
from tests.conftest import NewTopic
from tests.waiting import SECONDS, until


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


CALLS: dict[str, Callable[[Consumer, TopicPartition], object]] = {
    "subscribe": lambda consumer, partition: consumer.subscribe([partition.topic]),
    "pattern": lambda consumer, partition: consumer.subscribe(pattern=partition.topic),
    "unsubscribe": lambda consumer, partition: consumer.unsubscribe(),
    "subscription": lambda consumer, partition: consumer.subscription(),
    "assign": lambda consumer, partition: consumer.assign([partition]),
    "assignment": lambda consumer, partition: consumer.assignment(),
    "poll": lambda consumer, partition: consumer.poll(0),
    "poll_arrow": lambda consumer, partition: consumer.poll_arrow(0),
    "commit": lambda consumer, partition: consumer.commit({partition: 1}),
    "commit_async": lambda consumer, partition: consumer.commit_async({partition: 1}),
    "committed": lambda consumer, partition: consumer.committed([partition]),
    "position": lambda consumer, partition: consumer.position(partition),
    "seek": lambda consumer, partition: consumer.seek(partition, 0),
    "seek_to_beginning": lambda consumer, partition: consumer.seek_to_beginning(partition),
    "seek_to_end": lambda consumer, partition: consumer.seek_to_end(partition),
    "offsets_for_times": lambda consumer, partition: consumer.offsets_for_times({partition: 0}),
    "beginning_offsets": lambda consumer, partition: consumer.beginning_offsets([partition]),
    "end_offsets": lambda consumer, partition: consumer.end_offsets([partition]),
    "lag": lambda consumer, partition: consumer.lag(partition),
    "pause": lambda consumer, partition: consumer.pause(partition),
    "resume": lambda consumer, partition: consumer.resume(partition),
    "fetch_until": lambda consumer, partition: consumer.fetch_until(partition, 1),
    "paused": lambda consumer, partition: consumer.paused(),
    "partitions_for": lambda consumer, partition: consumer.partitions_for(partition.topic),
    "topics": lambda consumer, partition: consumer.topics(),
    "enforce_rebalance": lambda consumer, partition: consumer.enforce_rebalance(),
    "group_metadata": lambda consumer, partition: consumer.group_metadata(),
    "metrics": lambda consumer, partition: consumer.metrics(),
}


# --- two threads


def test_a_second_thread_is_refused_whatever_it_calls(bootstrap_servers: str, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    consumer = Consumer(bootstrap_servers=bootstrap_servers, group_id=group)
    consumer.assign([partition])
    inside = threading.Event()

    def poll() -> None:
        inside.set()
        with pytest.raises(WakeupError):
            poll_when_free(consumer)

    polling = threading.Thread(target=poll)
    polling.start()
    assert inside.wait(SECONDS)
    until(lambda: is_refused(consumer), "the other thread is in poll")
    for call in CALLS.values():
        with pytest.raises(ConcurrentAccessError, match="another thread"):
            call(consumer, partition)
    for other in (consumer.close, consumer.diagnose):
        with pytest.raises(ConcurrentAccessError, match="another thread"):
            other()
    assert polling.is_alive(), "the other thread was disturbed"
    consumer.wakeup()
    polling.join(SECONDS)
    assert consumer.assignment() == {partition}, "afterwards this thread may use it"
    consumer.close()


def poll_when_free(consumer: Consumer) -> None:
    """Poll, for a while: whoever looks whether it polls may be there first."""
    while True:
        with contextlib.suppress(ConcurrentAccessError):
            consumer.poll(SECONDS)
            return


def is_refused(consumer: Consumer) -> bool:
    try:
        consumer.paused()
    except ConcurrentAccessError:
        return True
    return False


def test_one_thread_after_the_other_is_fine(bootstrap_servers: str, topic: str) -> None:
    outcome: list[object] = []
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        other = threading.Thread(target=lambda: outcome.append(consumer.poll(0.01)))
        other.start()
        other.join(SECONDS)
        consumer.poll(0.01)
    assert len(outcome) == 1


# --- after close


@pytest.mark.parametrize("name", CALLS)
def test_use_after_close(bootstrap_servers: str, topic: str, group: str, name: str) -> None:
    consumer = Consumer(bootstrap_servers=bootstrap_servers, group_id=group)
    consumer.close()
    with pytest.raises(ConsumerClosedError, match="closed"):
        CALLS[name](consumer, TopicPartition(topic, 0))


def test_close_again_and_other_harmless_things(bootstrap_servers: str) -> None:
    consumer = Consumer(bootstrap_servers=bootstrap_servers)
    consumer.close()
    consumer.close()
    consumer.wakeup()
    assert consumer.diagnose() == "The consumer is closed."
    assert list(consumer) == []
    assert issubclass(ConsumerClosedError, ClosedError)


def test_a_forgotten_consumer_ends_its_thread(bootstrap_servers: str) -> None:
    consumer = Consumer(bootstrap_servers=bootstrap_servers, client_id="forgotten")
    threads = [each for each in threading.enumerate() if "forgotten" in each.name]
    assert len(threads) == 1
    del consumer  # nothing else refers to it: no garbage collection is needed
    until(lambda: not threads[0].is_alive(), "the thread ends")


# --- choosing what to read


def test_subscribe_and_assign_do_not_mix(bootstrap_servers: str, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.assign([partition])
        with pytest.raises(MisuseError, match="cannot be mixed"):
            consumer.subscribe([topic])
        assert consumer.assignment() == {partition}
        consumer.unsubscribe()
        consumer.subscribe([topic])
        with pytest.raises(MisuseError, match="cannot be mixed"):
            consumer.assign([partition])
        with pytest.raises(MisuseError, match="cannot be mixed"):
            consumer.subscribe(pattern=topic)
        consumer.unsubscribe()
        consumer.subscribe(pattern=topic)


def test_nothing_to_poll(bootstrap_servers: str, group: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        with pytest.raises(MisuseError, match=r"call subscribe\(\) or assign\(\) first"):
            consumer.poll(0)
        consumer.subscribe([])
        with pytest.raises(MisuseError, match=r"call subscribe\(\) or assign\(\) first"):
            consumer.poll(0)


def test_wrong_arguments(bootstrap_servers: str, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        with pytest.raises(MisuseError, match=r"subscribe\(\['t'\]\)"):
            consumer.subscribe("t")
        with pytest.raises(MisuseError, match="topics or a pattern"):
            consumer.subscribe()
        with pytest.raises(MisuseError, match="topics or a pattern"):
            consumer.subscribe([topic], pattern=topic)
        with pytest.raises(MisuseError, match="must not be empty"):
            consumer.subscribe([""])
        with pytest.raises(ConfigError, match="not a regular expression"):
            consumer.subscribe(pattern="(")
        with pytest.raises(MisuseError, match="RebalanceListener"):
            consumer.subscribe([topic], listener=object())  # type: ignore[arg-type]
        with pytest.raises(MisuseError, match="TopicPartition"):
            consumer.assign([topic])  # type: ignore[list-item]
        consumer.assign([partition])
        with pytest.raises(MisuseError, match="negative"):
            consumer.poll(-1)
        with pytest.raises(MisuseError, match="at least 1"):
            consumer.poll(0, max_records=0)
        with pytest.raises(MisuseError, match="not negative"):
            consumer.commit({partition: -5})
        with pytest.raises(MisuseError, match="must not be negative"):
            consumer.offsets_for_times({partition: -1})


def test_without_a_group(bootstrap_servers: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        with pytest.raises(MisuseError, match="group_id"):
            consumer.subscribe([topic], listener=RebalanceListener())
        for call in (
            consumer.commit,
            lambda: consumer.commit_async({partition: 1}),
            lambda: consumer.committed([partition]),
            consumer.group_metadata,
        ):
            with pytest.raises(MisuseError, match="group_id"):
                call()


# --- settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"group_idd": "g"}, "group_id"),
        ({"group.idd": "g"}, "group.id"),
        ({"acks": "all"}, "producer"),
        ({"group_id": ""}, "empty"),
        ({"auto_offset_reset": "smallest"}, "earliest"),
        ({"max_poll_records": 0}, "max_poll_records"),
        ({"max_poll_records": "many"}, "max_poll_records"),
        ({"session_timeout_ms": 1000, "heartbeat_interval_ms": 1000}, "heartbeat_interval_ms"),
        ({"group_instance_id": "a"}, "group_id"),
        ({"enable_auto_commit": True}, "group_id"),
        ({"group_id": "g", "partition_assignment_strategy": "rang"}, "'range'"),
        ({"group_id": "g", "partition_assignment_strategy": []}, "assignor"),
        ({"value_deserializer": "jsn"}, "json"),
        ({"ssl_cafile": "x"}, "ssl_ca_"),
    ],
)
def test_wrong_settings(bootstrap_servers: str, settings: dict[str, object], words: str) -> None:
    before = threading.active_count()
    with pytest.raises(ConfigError, match=words):
        Consumer({"bootstrap.servers": bootstrap_servers, **settings})
    until(lambda: threading.active_count() <= before, "no thread is left behind")


def test_a_session_the_broker_does_not_allow(bootstrap_servers: str, topic: str, group: str) -> None:
    """What only the broker knows is raised by poll, with what to change."""
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, session_timeout_ms=20) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(MillstreamError, match="session_timeout_ms"):
            consumer.poll(SECONDS)
