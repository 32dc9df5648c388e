"""The broker's life: starting, refusing to start, stopping, and what it remembers."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from millstream import Consumer, Producer, Record, TopicPartition
from millstream.admin import Admin
from millstream.embedded import EmbeddedBroker
from millstream.errors import BrokerStartError
from tests.system.raw_client import RawClient, fetch_request
from tests.waiting import SECONDS, soon_enough, until


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as first:
        with pytest.raises(BrokerStartError, match=f"in use by another broker .process {first.pid}"):
            EmbeddedBroker(tmp_path).start()
        with RawClient(first.bootstrap_servers) as client:
            client.create_topic("still-served")
    with EmbeddedBroker(tmp_path) as again, RawClient(again.bootstrap_servers) as client:
        assert client.metadata("still-served").topics[0].error_code == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerStartError, match=f"cannot listen on {address}"):
            EmbeddedBroker(tmp_path, listen=address).start()


def test_other_machines_are_let_in_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(BrokerStartError, match="no authentication"):
        EmbeddedBroker(tmp_path, listen="0.0.0.0:0").start()
    with EmbeddedBroker(tmp_path, listen="0.0.0.0:0", allow_remote=True) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        with RawClient(f"127.0.0.1:{port}") as client:
            told = client.metadata().brokers[0]
            assert (told.host, told.port) == ("127.0.0.1", int(port)), (
                "clients are told the address they used"
            )


def test_a_bad_setting_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(BrokerStartError, match=r"did you mean num\.partitions"):
        EmbeddedBroker(tmp_path, settings={"num.partition": 3}).start()
    with pytest.raises(BrokerStartError, match=r"log\.retention\.ms|retention\.ms"):
        EmbeddedBroker(tmp_path, settings={"log.retention.ms": "soon"}).start()


def test_sigterm_stops_within_two_seconds(tmp_path: Path) -> None:
    attempts = itertools.count()

    def attempt() -> float:
        data = tmp_path / str(next(attempts))
        with EmbeddedBroker(data) as broker, RawClient(broker.bootstrap_servers) as client:
            client.create_topic("t")
            client.produce("t", b"x")
            client.send(fetch_request("t", 1, max_wait_ms=60_000), 12)
            process = psutil.Process(broker.pid)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) in (0, None)
            took = time.monotonic() - began
        assert (data / ".clean-shutdown").exists()
        return took

    soon_enough(attempt, 2.0, "seconds until it has stopped", attempts=6)


def test_the_broker_ends_with_its_program(tmp_path: Path) -> None:
    program = f"""
import os
from millstream.embedded import EmbeddedBroker
broker = EmbeddedBroker({str(tmp_path)!r}).start()
print(broker.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    pid = int(ended.stdout)
    until(lambda: not psutil.pid_exists(pid), "the orphaned broker ends")
    assert (tmp_path / ".clean-shutdown").exists(), "it stopped cleanly"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_topics_ids_and_settings_survive(tmp_path: Path, end: str) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("kept", partitions=3, configs={"retention.ms": "1234567"})
            admin.create_topic("gone", partitions=1)
            admin.alter_configs("kept", {"max.message.bytes": "2000000"})
            admin.delete_topics(["gone"])
        with RawClient(broker.bootstrap_servers) as client:
            before = client.metadata("kept")
        getattr(broker, end)()
        broker.start()
        with RawClient(broker.bootstrap_servers) as client:
            after = client.metadata("kept")
            assert client.metadata("gone").topics[0].error_code != 0
        assert after.cluster_id == before.cluster_id
        assert after.topics[0].topic_id == before.topics[0].topic_id
        assert len(after.topics[0].partitions) == 3
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            configs = admin.topic_configs("kept")
            assert configs["retention.ms"].value == "1234567"
            assert configs["max.message.bytes"].value == "2000000"


def test_retention_set_at_run_time_deletes_old_segments(tmp_path: Path) -> None:
    settings = {
        "log.retention.check.interval.ms": 50,
        "log.retention.ms": -1,
        "log.segment.bytes": 10_000,
    }
    with EmbeddedBroker(tmp_path, settings=settings) as broker, RawClient(broker.bootstrap_servers) as client:
        client.create_topic("old")
        for _ in range(20):
            assert client.produce("old", bytes(4000)).error_code == 0
        assert client.fetch("old").log_start_offset == 0
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.alter_configs("old", {"retention.bytes": "20000"})
        until(lambda: client.fetch("old", 19).log_start_offset > 10, "old segments go")
        assert client.fetch("old", 19).error_code == 0
        until(lambda: len(list((tmp_path / "old-0").glob("*.log"))) <= 4, "their files go")


def test_a_thousand_partitions(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        with RawClient(broker.bootstrap_servers) as client:
            client.create_topic("wide", partitions=1000)
            for partition in range(0, 1000, 50):
                assert client.produce("wide", b"x", partition=partition).error_code == 0
        for end in (broker.stop, broker.kill):
            end()
            broker.start()
            with RawClient(broker.bootstrap_servers) as client:
                assert len(client.metadata("wide").topics[0].partitions) == 1000
                for partition in range(0, 1000, 50):
                    assert client.fetch("wide", partition=partition).high_watermark == 1


def test_the_port_and_the_data_stay_over_a_restart() -> None:
    with EmbeddedBroker() as broker:
        address, data = broker.bootstrap_servers, broker.data
        broker.stop()
        broker.start()
        assert (broker.bootstrap_servers, broker.data) == (address, data)
    assert not os.path.exists(data), "data that nobody asked to keep is thrown away"


def test_compaction_keeps_the_latest_of_each_key(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": 50, "log.segment.bytes": 20_000, "log.retention.ms": -1}
    with (
        EmbeddedBroker(tmp_path, settings=settings) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.create_topic("latest", partitions=1, configs={"cleanup.policy": "compact"})
        with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=500) as producer:
            for number in range(3000):
                producer.send("latest", b"%d" % number, key=b"key-%d" % (number % 7))
        until(lambda: count_records(broker) < 1500, "the log is compacted")
        latest = {record.key: record.value for record in read_all(broker)}
        assert latest == {b"key-%d" % (n % 7): b"%d" % n for n in range(2993, 3000)}
        before = [(record.offset, record.key, record.value) for record in read_all(broker)]
        broker.kill()
        broker.start()
        after = [(record.offset, record.key, record.value) for record in read_all(broker)]
        assert {each[1:] for each in after[-7:]} == {each[1:] for each in before[-7:]}


def read_all(broker: EmbeddedBroker) -> list[Record]:
    found: list[Record] = []
    where = TopicPartition("latest", 0)
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([where])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([where])[where]

        def read() -> bool:
            found.extend(consumer.poll(1.0))
            return consumer.position(where) >= end

        until(read, lambda: f"the end, {end}; it is at {consumer.position(where)}")
    return found


def count_records(broker: EmbeddedBroker) -> int:
    return len(read_all(broker))
