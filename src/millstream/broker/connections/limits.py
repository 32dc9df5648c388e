"""How many connections there may be: in all, by listener, and by address. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping


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
