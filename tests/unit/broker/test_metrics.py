"""The broker's metrics: one call reads all of them, with what their fields declare."""

from __future__ import annotations

from pathlib import Path

from millstream.broker.metrics import BrokerMetrics, LatencyHistogram, MetricReading
from millstream.broker.services import Services
from millstream.broker.settings import BrokerSettings


def test_one_call_reads_every_metric(tmp_path: Path) -> None:
    services = Services(tmp_path, BrokerSettings())
    try:
        services.open()
        services.metrics.bytes_in += 7
        services.metrics.request_ms["Fetch"].observe(1.5)
        readings = {reading.name: reading for reading in services.read_metrics()}
    finally:
        services.close()
    assert readings["broker_bytes_in"] == MetricReading(
        "broker_bytes_in", "counter", "Bytes received in requests.", "", {"": 7}
    )
    assert readings["groups_groups_by_state"].label == "state"
    assert readings["groups_groups_by_state"].values["Stable"] == 0
    latency = readings["broker_request_ms"].values["Fetch"]
    assert isinstance(latency, LatencyHistogram)
    assert (latency.count, latency.max_ms, latency.buckets[2]) == (1, 1.5, 1)
    assert all(reading.help.endswith(".") and reading.kind for reading in readings.values())
    assert len(readings) == len(services.read_metrics()), "names are unique"


def test_a_bucket_includes_its_upper_bound() -> None:
    latency = BrokerMetrics().request_ms["Produce"]
    for elapsed_ms in (0.0, 0.5, 0.6, 5000.0, 5000.1):
        latency.observe(elapsed_ms)
    assert (latency.buckets[0], latency.buckets[1], latency.buckets[-2], latency.buckets[-1]) == (2, 1, 1, 1)
