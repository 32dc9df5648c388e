"""The broker's ``/metrics``: lag as Admin sees it, hostile client ids, health, and only for this machine."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millstream import Admin, Consumer, EmbeddedBroker, Producer
from millstream.errors import BrokerStartError, GroupIdNotFoundError
from millstream.model import OffsetAndMetadata, TopicPartition
from tests.waiting import until

Samples = dict[str, dict[tuple[str, ...], float]]
HOSTILE = 'a"b\\c\nkafka_brokers 7'


def scraped(url: str) -> Samples:
    """Every sample by its name, then by the values of its labels."""
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    samples: Samples = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            samples[each.name][tuple(each.labels.values())] = each.value
    return samples


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(metrics_port=0) as broker:
        yield broker


def test_lag_is_what_admin_says_also_without_members(broker: EmbeddedBroker) -> None:
    hour_ago_ms = time.time_ns() // 1_000_000 - 3_600_000
    with (
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        admin.create_topic("orders", partitions=2)
        for number in range(100):
            at_ms = hour_ago_ms + number * 1000
            producer.send("orders", b"x", partition=0, timestamp=at_ms)
        producer.flush()
        places = {
            TopicPartition("orders", 0): OffsetAndMetadata(40),
            TopicPartition("orders", 1): OffsetAndMetadata(0),
        }
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="billing", enable_auto_commit=False
        ) as consumer:
            consumer.assign(list(places))
            consumer.commit(places)
        lags = {(one.topic, one.partition): one.lag for one in admin.describe_group("billing").partitions}
    samples = scraped(broker.metrics_url)
    assert lags == {("orders", 0): 60, ("orders", 1): 0}
    assert samples["kafka_consumergroup_lag"] == {
        ("billing", topic, str(partition)): lag for (topic, partition), lag in lags.items()
    }
    assert samples["kafka_consumergroup_lag_sum"]["billing", "orders"] == 60
    assert samples["kafka_consumergroup_current_offset"]["billing", "orders", "0"] == 40
    assert samples["kafka_consumergroup_members"]["billing",] == 0
    assert samples["millstream_consumergroup_state"] == {("billing", "Empty"): 1}
    assert samples["kafka_topic_partition_current_offset"]["orders", "0"] == 100
    assert samples["kafka_topic_partition_oldest_offset"]["orders", "0"] == 0
    assert samples["kafka_topic_partitions"]["orders",] == 2
    assert samples["millstream_broker_topic_records_in_total"]["orders",] == 100
    assert samples["millstream_topic_size_bytes"]["orders",] > 100
    assert samples["millstream_broker_request_seconds_count"]["Produce",] >= 1
    assert samples["millstream_broker_sync_seconds_count"][()] >= 1
    seconds = samples["millstream_consumergroup_lag_seconds"]
    assert seconds["billing", "orders", "1"] == 0
    assert seconds["billing", "orders", "0"] == pytest.approx(3600 - 40, rel=0.1)


def test_a_client_id_cannot_forge_a_metric(broker: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers, client_id=HOSTILE) as admin:
        admin.list_topics()
    samples = scraped(broker.metrics_url)
    assert samples["kafka_brokers"] == {(): 1}
    assert samples["millstream_broker_client_requests_total"][HOSTILE,] >= 1


def test_errors_are_counted_by_api(broker: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin, pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("missing", [TopicPartition("orders", 0)])
    counted = scraped(broker.metrics_url)["millstream_broker_errors_total"]
    assert counted["OffsetDelete", "GROUP_ID_NOT_FOUND"] >= 1


def test_health_and_readiness(broker: EmbeddedBroker) -> None:
    for path in ("/health", "/ready"):
        with urllib.request.urlopen(broker.metrics_url.replace("/metrics", path), timeout=10) as answer:
            assert answer.read() == b"ok\n"


def test_scrapes_under_load_see_numbers_that_only_rise(broker: EmbeddedBroker) -> None:
    stopped = threading.Event()

    def write() -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            while not stopped.is_set():
                producer.send("busy", b"x" * 100)
                producer.flush()

    def written() -> float:
        return scraped(broker.metrics_url)["millstream_broker_topic_records_in_total"].get(("busy",), 0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(lambda: written() > 0, "a first record")
        seen = [written() for _ in range(10)]
    finally:
        stopped.set()
        writer.join()
    assert seen == sorted(seen)


def test_metrics_are_off_unless_asked_for_and_for_this_machine_only(broker: EmbeddedBroker) -> None:
    assert broker.metrics_url.startswith("http://127.0.0.1:")
    anywhere: Any = "0.0.0.0:0"
    with pytest.raises(BrokerStartError, match="--allow-remote"):
        EmbeddedBroker(metrics_port=anywhere).start()
