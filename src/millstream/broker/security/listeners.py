"""Listeners: where the broker listens, with which protocol, and what clients are told to use.

They are written as Kafka writes them: ``NAME://host:port``, separated by commas. The name is that of a
security protocol, or any other that ``listener.security.protocol.map`` maps to one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from millstream.errors import ConfigError
from millstream.settings import Address, parse_address


class SecurityProtocol(StrEnum):
    """How a listener's connections are secured."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def encrypts(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def authenticates(self) -> bool:
        """Whether clients log in by SASL before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on. ``advertised`` is what clients are told; None: where they reached it."""

    name: str
    protocol: SecurityProtocol
    address: Address
    advertised: Address | None = None

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


_NAMED = re.compile(r"(?:(?P<name>[A-Za-z][\w.-]*)://)?(?P<address>.*)")


def read_listeners(
    listeners: str, advertised: str = "", protocol_map: str = "", ignored: Iterable[str] = ()
) -> tuple[Listener, ...]:
    """Read Kafka's settings of these names; ``ignored`` are listeners of controllers. Raises ConfigError."""
    protocols = _read_map(protocol_map)
    skipped = {name.upper() for name in ignored}
    told = _read_endpoints(advertised, "advertised.listeners", lowest_port=1)
    found = []
    for name, address in _read_endpoints(listeners, "listeners", lowest_port=0).items():
        if name not in skipped:
            found.append(Listener(name, _protocol_of(name, protocols), address, told.get(name)))
    names = {listener.name for listener in found}
    if not found:
        raise ConfigError("listeners names no address to listen on: write PLAINTEXT://127.0.0.1:9092")
    if strangers := sorted(told.keys() - names - skipped):
        known = ", ".join(sorted(names))
        raise ConfigError(f"advertised.listeners has {', '.join(strangers)}, but listeners has only {known}")
    return tuple(found)


def _read_endpoints(text: str, setting: str, *, lowest_port: int) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = _NAMED.fullmatch(part)
        assert match is not None, "every part of the pattern is optional"
        name = (match["name"] or SecurityProtocol.PLAINTEXT).upper()
        address = match["address"]
        if address.startswith(":") and lowest_port == 0:
            address = f"0.0.0.0{address}"  # as in Kafka, no host is every address of this machine
        if name in found:
            raise ConfigError(f"{setting} has {name} twice: give each listener a name of its own")
        found[name] = parse_address(address, lowest_port=lowest_port)
    return found


def _read_map(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = part.partition(":")
        if not colon:
            raise ConfigError(f"listener.security.protocol.map has {part!r}: write NAME:PROTOCOL")
        pairs[name.strip().upper()] = protocol.strip().upper()
    return pairs


def _protocol_of(name: str, protocols: Mapping[str, str]) -> SecurityProtocol:
    word = protocols.get(name, name)
    try:
        return SecurityProtocol(word)
    except ValueError:
        known = ", ".join(SecurityProtocol)
        if name in protocols:
            raise ConfigError(f"listener.security.protocol.map: {word} is not one of {known}") from None
        raise ConfigError(
            f"the listener {name} has no protocol: add {name}:PROTOCOL to listener.security.protocol.map, "
            f"with one of {known}"
        ) from None
