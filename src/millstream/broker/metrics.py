"""Counters that the broker keeps about itself, and the one call that reads them all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

_BUCKETS_MS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
"""Upper ends of the latency histogram's buckets; the last bucket is open."""


@dataclass(slots=True)
class ApiMetrics:
    """One API's requests: how many, how many failed, and how long they took from frame to reply."""

    requests: int = 0
    errors: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS_MS) + 1))

    def observe(self, elapsed_ms: float) -> None:
        self.requests += 1
        self.total_ms += elapsed_ms
        self.max_ms = max(self.max_ms, elapsed_ms)
        for index, bound in enumerate(_BUCKETS_MS):
            if elapsed_ms <= bound:
                self.histogram[index] += 1
                return
        self.histogram[-1] += 1

    def percentile(self, fraction: float) -> float:
        """The upper end of the bucket in which this fraction of the requests lies; 0 without requests."""
        wanted = fraction * self.requests
        seen = 0
        for index, count in enumerate(self.histogram):
            seen += count
            if count and seen >= wanted:
                return _BUCKETS_MS[index] if index < len(_BUCKETS_MS) else self.max_ms
        return 0.0

    def snapshot(self) -> dict[str, Any]:
        mean = self.total_ms / self.requests if self.requests else 0.0
        return {
            "requests": self.requests,
            "errors": self.errors,
            "mean_ms": round(mean, 3),
            "p50_ms": self.percentile(0.5),
            "p99_ms": self.percentile(0.99),
            "max_ms": round(self.max_ms, 3),
        }


@dataclass(slots=True)
class BrokerMetrics:
    """What the whole broker counts. Written on the loop's thread only; a reader sees a moment's values."""

    connections_open: int = 0
    connections_total: int = 0
    connections_refused: int = 0
    malformed_requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    records_in: int = 0
    parked_fetches: int = 0
    syncs: int = 0
    failed_syncs: int = 0
    apis: dict[str, ApiMetrics] = field(default_factory=dict)

    def api(self, name: str) -> ApiMetrics:
        found = self.apis.get(name)
        if found is None:
            found = self.apis[name] = ApiMetrics()
        return found

    def snapshot(self) -> dict[str, Any]:
        """All counters as plain values, ready for JSON."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "apis"}
        return plain | {"apis": {name: api.snapshot() for name, api in sorted(self.apis.items())}}
