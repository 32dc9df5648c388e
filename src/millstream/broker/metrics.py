"""The broker's metrics: each is one field that declares its kind, help text and labels.

To add a metric, add a field and count on it (``metrics.bytes_in += size``). ``broker/scrape.py`` reads them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from millstream.metrics.declarations import (
    BoundedCounts,
    LatencyHistogram,
    bounded_counts,
    counter,
    counts,
    gauge,
    histogram,
)


@dataclass(slots=True)
class BrokerMetrics:
    """What the broker counts outside its groups. Written on the event loop's thread only."""

    connections_open: int = gauge("Connections that are open.")
    connections_total: int = counter("Connections that clients opened.")
    connections_refused: int = counter("Connections that were refused, as there were too many.")
    handshakes_failed: int = counter("TLS handshakes that failed or took too long.")
    logins: int = counter("Logins by SASL, repeated ones included.")
    logins_failed: int = counter("Logins by SASL that were refused.")
    unauthenticated_requests: int = counter("Requests that closed a connection for want of a login.")
    malformed_requests: int = counter("Requests that could not be decoded, or whose API is unknown.")
    throttled_requests: int = counter("Requests after which a client had to pause, as it was over a quota.")
    bytes_in: int = counter("Bytes received in requests.")
    bytes_out: int = counter("Bytes sent in answers.")
    records_in: int = counter("Records appended by producers.")
    parked_fetches: int = gauge("Fetches that wait for data.")
    syncs: int = counter("Syncs of logs to the disk.")
    failed_syncs: int = counter("Syncs that the disk failed.")
    sync_seconds: LatencyHistogram = histogram("Seconds of a sync; of many logs together, it is one.")
    request_seconds: defaultdict[str, LatencyHistogram] = histogram(
        "Seconds from a request's arrival to its answer.", "api"
    )
    errors: defaultdict[tuple[str, str], int] = counts(
        "Errors in answers, also by partition.", "api", "error"
    )
    topic_records_in: BoundedCounts = bounded_counts("Records appended to a topic.", "topic")
    topic_bytes_in: BoundedCounts = bounded_counts("Bytes of record batches appended to a topic.", "topic")
    topic_bytes_out: BoundedCounts = bounded_counts("Bytes of record batches that fetches returned.", "topic")
    client_requests: BoundedCounts = bounded_counts("Requests by client.id.", "client_id")
    client_throttled_requests: BoundedCounts = bounded_counts(
        "Requests after which a client had to pause, by client.id.", "client_id"
    )
