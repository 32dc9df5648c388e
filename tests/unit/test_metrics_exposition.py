"""Prometheus' text format, read back by Prometheus' own parser; and the server that hands it out."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from millstream.broker.scrape import broker_metrics
from millstream.errors import ConfigError
from millstream.metrics import exposition as exposition_module
from millstream.metrics.declarations import (
    OTHER,
    BoundedCounts,
    Labels,
    LatencyHistogram,
    Metric,
    MetricReading,
)
from millstream.metrics.exposition import exposition
from millstream.metrics.server import MetricsServer, read_address

HOSTILE = ['a"b', "a\\b", "a\nb 7\nfake_metric 1", "}", "é\u2028✓", "\r\x00", "{x='1'}", ""]
COUNTED = Metric("requests_total", "counter", "Requests:\nby \\ client.", ("client_id",))


def test_a_parser_reads_back_what_was_written_whatever_the_labels_are() -> None:
    values: dict[Labels, float] = {(label,): number for number, label in enumerate(HOSTILE)}
    families = list(text_string_to_metric_families(exposition([MetricReading(COUNTED, values)]).decode()))
    assert [each.name for each in families] == ["requests", "millstream_metrics_left_out"]
    assert families[0].documentation == COUNTED.help
    assert {each.labels["client_id"]: each.value for each in families[0].samples} == {
        label: number for number, label in enumerate(HOSTILE)
    }


def test_a_label_that_is_no_text_is_replaced() -> None:
    assert b'{client_id="?"}' in exposition([MetricReading(COUNTED, {("\ud800",): 1})])


def test_a_histogram_has_cumulative_buckets() -> None:
    latency = LatencyHistogram()
    for elapsed_s in (0.0001, 0.003, 9.0):
        latency.observe(elapsed_s)
    metric = Metric("took_seconds", "histogram", "Seconds.", ("api",))
    text = exposition([MetricReading(metric, {("Fetch",): latency})]).decode()
    samples = next(iter(text_string_to_metric_families(text))).samples
    buckets = {each.labels["le"]: each.value for each in samples if each.name == "took_seconds_bucket"}
    assert (buckets["0.0005"], buckets["0.002"], buckets["0.005"], buckets["+Inf"]) == (1, 1, 2, 3)
    assert [each.value for each in samples[-2:]] == [pytest.approx(9.0031), 3]


def test_a_metric_with_too_many_values_says_how_many_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition_module, "MAX_SERIES", 2)
    text = exposition([MetricReading(COUNTED, {(str(number),): 1 for number in range(5)})]).decode()
    assert text.count("requests_total{") == 2
    assert text.endswith("millstream_metrics_left_out 3\n")


def test_labels_that_clients_choose_are_bounded() -> None:
    counts = BoundedCounts()
    for number in range(counts.LIMIT + 5):
        counts.add(f"client-{number}")
    counts.add("client-1", 2)
    counts.add("x" * 40_000)
    assert len(counts) == counts.LIMIT + 1
    assert (counts["client-1"], counts[OTHER]) == (3, 6)


@pytest.mark.parametrize(
    ("text", "address"),
    [("9308", ("127.0.0.1", 9308)), ("[::1]:0", ("::1", 0)), ("0.0.0.0:1", ("0.0.0.0", 1))],
)
def test_an_address_is_of_this_machine_unless_it_names_another(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["", "x", "-1", "65536", "host:", "²"])
def test_an_address_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="PORT"):
        read_address(text)


class Asked:
    """Something with metrics."""

    unready = ""

    def exposition(self) -> bytes:
        return b"up 1\n"

    def trouble(self) -> str:
        return ""

    def unreadiness(self) -> str:
        return self.unready


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    server = MetricsServer(0)
    server.start(Asked())
    yield server
    server.close()


def get(server: MetricsServer, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection(server.address, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": host})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_server_answers_three_addresses(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(server, "/metrics?x=1") == (200, "up 1\n")
    assert get(server, "/health") == get(server, "/ready") == (200, "ok\n")
    monkeypatch.setattr(Asked, "unready", "not yet")
    assert get(server, "/ready") == (503, "not yet\n")
    assert get(server, "/")[0] == 404


def test_a_page_cannot_read_metrics_through_a_name_that_points_here(server: MetricsServer) -> None:
    assert get(server, "/metrics", "rebound.example:80")[0] == 421
    assert get(server, "/metrics", "localhost:80")[0] == 200


def test_a_port_in_use_is_an_error_that_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="metrics cannot listen on"):
            MetricsServer(taken.getsockname()[1])


def test_alert_rules_name_metrics_that_exist() -> None:
    rules = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "alerts.yml").read_text())
    known = {metric.name for metric in broker_metrics()}
    known |= {f"{each.name}_bucket" for each in broker_metrics() if each.kind == "histogram"}
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    named = {name for text in expressions for name in re.findall(r"(?:kafka|millstream|process)_\w+", text)}
    assert len(expressions) >= 6 and len(named) >= 5
    assert named <= known
