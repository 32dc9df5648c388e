"""Counters of one client: connections, requests, bytes and latencies. Written by its I/O thread alone."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class RequestLatency:
    """The answered requests of one API, and how long the answers took."""

    count: int = 0
    total_ms: int = 0
    max_ms: int = 0

    def record(self, latency_ms: int) -> None:
        self.count += 1
        self.total_ms += latency_ms
        self.max_ms = max(self.max_ms, latency_ms)


class ClientMetrics:
    """Plain integers: reading them from another thread is safe, and at worst a moment old."""

    def __init__(self) -> None:
        self.connections_opened = 0
        self.connections_closed = 0
        self.connections_failed = 0
        self.requests_sent = 0
        self.requests_failed = 0
        self.requests_timed_out = 0
        self.responses_received = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        self.metadata_refreshes = 0
        self.throttle_ms = 0
        self.by_api: dict[str, RequestLatency] = {}

    def answered(self, api: str, latency_ms: int, frame_bytes: int) -> None:
        self.responses_received += 1
        self.bytes_received += frame_bytes
        metrics = self.by_api.get(api)
        if metrics is None:
            metrics = self.by_api[api] = RequestLatency()
        metrics.record(latency_ms)

    def snapshot(self) -> dict[str, int | float]:
        """All of them under flat names; latencies as ``request_latency_ms.Produce.avg`` and the like."""
        values: dict[str, int | float] = {
            name: value for name, value in vars(self).items() if isinstance(value, int)
        }
        for api, metrics in list(self.by_api.items()):
            prefix = f"request_latency_ms.{api}"
            for field in fields(metrics):
                values[f"{prefix}.{field.name.removesuffix('_ms')}"] = getattr(metrics, field.name)
            values[f"{prefix}.avg"] = metrics.total_ms / metrics.count if metrics.count else 0.0
        return values
