"""Waking up and ending: from another thread, from a signal; long polls that cost nothing; close at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer
from millstream.errors import MillstreamTimeoutError, WakeupError
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import (
    QUICK,
    ROOT,
    Member,
    MemberProcess,
    Settings,
    partitions_of,
    read_offsets,
    until_owns,
    until_shared,
)
from tests.waiting import SECONDS, soon_enough, until


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


def after(seconds: float, work: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
    return timer


# --- wakeup


def test_wakeup_from_another_thread_ends_poll(bootstrap_servers: str, topic: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        began = time.monotonic()
        after(0.3, consumer.wakeup)
        with pytest.raises(WakeupError):
            consumer.poll(SECONDS)
        assert 0.2 < time.monotonic() - began < 30
        assert not consumer.poll(0.1), "one wakeup ends one call"


def test_wakeup_before_poll_ends_the_next_one(bootstrap_servers: str, topic: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.wakeup()
        consumer.seek(TopicPartition(topic, 0), 0)  # calls that do not wait are not concerned
        with pytest.raises(WakeupError):
            consumer.poll(SECONDS)


def test_wakeup_is_heard_while_records_flow(bootstrap_servers: str, producer: Producer, topic: str) -> None:
    """A consumer with always something to read must be stoppable as well, and loses nothing by it."""
    for number in range(5):
        producer.send(topic, b"%d" % number).result(SECONDS)
    with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", max_poll_records=1
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen = read_offsets(consumer, 1)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(SECONDS)
        assert seen + read_offsets(consumer, 4) == [0, 1, 2, 3, 4]


def test_wakeup_ends_other_calls_that_wait(topic: str) -> None:
    """There is no broker at that address, so all of these would wait."""
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        for call in (
            lambda: consumer.position(partition, timeout=SECONDS),
            lambda: consumer.committed([partition], timeout=SECONDS),
            lambda: consumer.end_offsets([partition], timeout=SECONDS),
            lambda: consumer.partitions_for(topic, timeout=SECONDS),
            lambda: consumer.commit({partition: 1}, timeout=SECONDS),
        ):
            timer = after(0.1, consumer.wakeup)
            with pytest.raises(WakeupError):
                call()
            timer.join()
        consumer.close(timeout=0.1)


def test_a_signal_handler_ends_poll(bootstrap_servers: str, topic: str) -> None:
    """In this very process: the handler runs on the thread that polls."""
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        before = signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
        try:
            for _ in range(20):
                after(0.02, lambda: os.kill(os.getpid(), signal.SIGUSR1))
                began = time.monotonic()
                with pytest.raises(WakeupError):
                    consumer.poll(SECONDS)
                assert time.monotonic() - began < 30
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_a_process_that_is_told_to_end_leaves_the_group_at_once(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    everything = partitions_of(topic, 0, 1)
    with (
        Member(bootstrap_servers, group, [topic]) as stays,
        MemberProcess(bootstrap_servers, group, [topic], polling=True, session_timeout_ms=30_000) as ends,
    ):
        until_shared(everything, [stays, ends], [1, 1])
        ends.signal(signal.SIGTERM)
        assert ends.wait_for_end() == 0
        assert ends.told[-1][0] == "revoked"
        until_owns(stays, everything, 20)


def test_ctrl_c_ends_a_poll(bootstrap_servers: str, topic: str) -> None:
    """Without any handler: KeyboardInterrupt comes out of poll, and the with block closes."""
    program = (
        "import sys\n"
        "from millstream import Consumer, TopicPartition\n"
        "with Consumer(bootstrap_servers=sys.argv[1]) as consumer:\n"
        "    consumer.assign([TopicPartition(sys.argv[2], 0)])\n"
        "    consumer.position(TopicPartition(sys.argv[2], 0))\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        consumer.poll(60)\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, bootstrap_servers, topic],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(SECONDS) == 0
        assert time.monotonic() - began < 30


# --- long poll


def test_waiting_costs_next_to_nothing(bootstrap_servers: str, new_topic: NewTopic, group: str) -> None:
    """A member that waits in one long poll, with the default settings for fetches and heartbeats."""
    topic = new_topic(partitions=4)
    defaults: Settings = {
        "fetch_max_wait_ms": 500,
        "heartbeat_interval_ms": 3000,
        "session_timeout_ms": 45_000,
    }
    with MemberProcess(bootstrap_servers, group, [topic], **defaults) as process:
        until(lambda: process.ask("idle", seconds=1.0) and process.happenings, "it has joined")
        soon_enough(lambda: process.ask("idle", seconds=3.0), 0.03, "seconds of CPU in 3 s of waiting")


def test_a_new_record_arrives_within_milliseconds(
    bootstrap_servers: str, producer: Producer, topic: str
) -> None:
    """The fetch waits at the broker; the record need not wait for its end."""
    delays: list[float] = []
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        producer.send(topic, b"v")

    with Consumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=30_000
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.position(TopicPartition(topic, 0))

        def are_soon() -> bool:
            """Whether five of them were: on a busy machine the others wait for a processor."""
            timer = after(0.02, send)
            assert len(consumer.poll(SECONDS)) == 1
            timer.join()
            delays.append(time.monotonic() - sent[-1])
            return sum(delay < 0.05 for delay in delays) >= 5

        until(are_soon, lambda: f"five records within milliseconds: {delays}", SECONDS / 2)


# --- close


def test_close_leaves_at_once_and_commits_what_was_handed_out(
    bootstrap_servers: str, admin: Admin, producer: Producer, topic: str, group: str
) -> None:
    producer.send(topic, b"v").result(SECONDS)
    consumer = Consumer(
        {**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group, "fetch_max_wait_ms": 60_000}
    )
    consumer.subscribe([topic])
    assert until(lambda: consumer.poll(0.1), "a record")
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 20, "it must not wait for the fetch at the broker"
    described = admin.describe_group(group)
    assert (described.state, described.members) == ("Empty", ())
    assert [each.committed for each in described.partitions] == [1]


def test_close_without_a_broker_ends_in_time(topic: str) -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    consumer.subscribe([topic])
    assert not consumer.poll(0.2)
    began = time.monotonic()
    consumer.close(timeout=1)
    assert time.monotonic() - began < 20


def test_calls_end_when_their_time_is_over(topic: str) -> None:
    """And the error says why nothing came."""
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        began = time.monotonic()
        assert not consumer.poll(0.3)
        for call in (
            lambda: consumer.position(partition, timeout=0.2),
            lambda: consumer.partitions_for(topic, timeout=0.2),
        ):
            with pytest.raises(MillstreamTimeoutError, match=r"No broker has answered yet at 127\.0\.0\.1:1"):
                call()
        with pytest.raises(MillstreamTimeoutError):
            consumer.committed([partition], timeout=0.2)
        with pytest.raises(MillstreamTimeoutError):
            consumer.commit({partition: 1}, timeout=0.2)
        assert time.monotonic() - began < 30
        consumer.close(timeout=0.1)
