"""How many connections there may be, and how fast new ones may come. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping

from millstream.broker.quotas.rates import WindowedRate


class ConnectionLimits:
    """Counts the connections of one broker, those whose handshake is under way included."""

    def __init__(self, total: int, per_address: int, overrides: Mapping[str, int]) -> None:
        """``overrides``: the limits of some addresses, by address."""
        self._total = total
        self._per_address = per_address
        self._overrides = overrides
        self._addresses: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()

    def admit(self, address: str, listener: str, listener_limit: int) -> str:
        """Count a connection, and return an empty string; or the reason for which it must be refused."""
        per_address = self._overrides.get(address, self._per_address)
        if self._addresses[address] >= per_address:
            return f"the address has {per_address} connections (max.connections.per.ip)"
        if self._listeners[listener] >= listener_limit:
            return f"the listener {listener} has {listener_limit} connections (max.connections)"
        if self._listeners.total() >= self._total:
            return f"there are {self._total} connections (max.connections)"
        self._addresses[address] += 1
        self._listeners[listener] += 1
        return ""

    def release(self, address: str, listener: str) -> None:
        """A connection that was admitted is closed."""
        self._addresses[address] -= 1
        self._listeners[listener] -= 1
        if not self._addresses[address]:
            del self._addresses[address]


class CreationRates:
    """How fast connections come, in all and by listener (KIP-612). Those that come too fast must wait."""

    def __init__(self, total: int, windows: int, window_ms: int) -> None:
        self._total = total
        self._windows = windows
        self._window_ms = window_ms
        self._all = WindowedRate(windows, window_ms)
        self._listeners: dict[str, WindowedRate] = {}

    def pause_ms(self, listener: str, listener_limit: int, now_ms: int) -> int:
        """Count a connection, and return how long to accept no other one: at most a window, as in Kafka."""
        rate = self._listeners.get(listener)
        if rate is None:
            rate = self._listeners[listener] = WindowedRate(self._windows, self._window_ms)
        rate.record(1, now_ms)
        self._all.record(1, now_ms)
        wait_ms = max(rate.throttle_ms(listener_limit, now_ms), self._all.throttle_ms(self._total, now_ms))
        return min(wait_ms, self._window_ms)


def address_as_in_java(host: str) -> str:
    """Return an IP address as Java writes it, and ACLs and Kafka's tools with it: IPv6 without ``::``."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


def read_overrides(text: str) -> dict[str, int]:
    """Read limits of addresses, as ``address:limit``, separated by commas. Raises ValueError."""
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        host, _, limit = part.rpartition(":")
        try:
            found[address_as_in_java(host.strip("[]"))] = int(limit)
        except ValueError:
            limit = "-1"
        if int(limit) < 0:
            raise ValueError("must list IP addresses with their limits, as 127.0.0.1:200")
    return found
