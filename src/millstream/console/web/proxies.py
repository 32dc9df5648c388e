"""Whose X-Forwarded-For header is believed: that of the proxies that the console was told of, no other's."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.terminal.outcome import UsageError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The networks of proxies that say truly whom they received a request from."""

    networks: tuple[_Network, ...] = ()

    @classmethod
    def of(cls, given: Iterable[str]) -> TrustedProxies:
        """From addresses, each alone or with a prefix length. Raises UsageError."""
        return cls(tuple(map(_network, given)))

    def client(self, peer: str, forwarded: Sequence[str]) -> str:
        """Who sent a request: the last hop that is no trusted proxy. ``forwarded``: the headers, in order.

        Each proxy adds the address it was called from at the end, so what is before an untrusted hop may be
        invented. A hop that is no address ends the search at the proxy that reported it.
        """
        found = _address(peer)
        if found is None:
            return peer
        hops = [hop for header in forwarded for hop in header.split(",")]
        while hops and self._trusts(found):
            reported = _address(hops.pop())
            if reported is None:
                break
            found = reported
        return str(found)

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self.networks)


def _network(text: str) -> _Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(
            f"--trusted-proxy {text}: {error}; write an address, as 10.0.0.5, or a network, as 10.0.0.0/24"
        ) from None
    if network.prefixlen == 0:
        raise UsageError(f"--trusted-proxy {text} would believe everyone: name the proxies' own addresses")
    return network


def _address(hop: str) -> _Address | None:
    """An address, also one with a port, as some proxies write; None for anything else."""
    hop = hop.strip()
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        address = ipaddress.ip_address(hop)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped
