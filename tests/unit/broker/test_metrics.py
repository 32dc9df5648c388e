"""The broker's metrics: one call reads all of them, with what their fields declare."""

from __future__ import annotations

from pathlib import Path

from millstream.broker.metrics import BrokerMetrics
from millstream.broker.services import Services
from millstream.broker.settings import BrokerSettings
from millstream.metrics.declarations import LatencyHistogram, Metric, MetricReading


def test_one_call_reads_every_metric(tmp_path: Path) -> None:
    services = Services(tmp_path, BrokerSettings())
    try:
        services.open()
        services.metrics.bytes_in += 7
        services.metrics.request_seconds["Fetch"].observe(0.0015)
        readings = {reading.metric.name: reading for reading in services.read_metrics()}
    finally:
        services.close()
    assert readings["millstream_broker_bytes_in_total"] == MetricReading(
        Metric("millstream_broker_bytes_in_total", "counter", "Bytes received in requests."), {(): 7}
    )
    assert readings["millstream_groups_groups_by_state"].metric.labels == ("state",)
    assert readings["millstream_groups_groups_by_state"].values["Stable",] == 0
    latency = readings["millstream_broker_request_seconds"].values["Fetch",]
    assert isinstance(latency, LatencyHistogram)
    assert (latency.count, latency.total_s, latency.buckets[2]) == (1, 0.0015, 1)
    assert all(reading.metric.help.endswith(".") for reading in readings.values())
    assert len(readings) == len(services.read_metrics()), "names are unique"


def test_a_bucket_includes_its_upper_bound() -> None:
    latency = BrokerMetrics().request_seconds["Produce"]
    for elapsed_s in (0.0, 0.0005, 0.0006, 5.0, 5.0001):
        latency.observe(elapsed_s)
    assert (latency.buckets[0], latency.buckets[1], latency.buckets[-2], latency.buckets[-1]) == (2, 1, 1, 1)
