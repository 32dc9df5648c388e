"""Which quotas there are, which of them a client has, and who shares it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from millstream.broker.connections.limits import address_as_in_java

USER: Final = "user"
CLIENT_ID: Final = "client-id"
ADDRESS: Final = "ip"


class QuotaKind(StrEnum):
    """What is limited, by Kafka's names."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


_WHOLE: Final = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.CONNECTION)
_MOST: Final = {QuotaKind.CONNECTION: 2**31}
_UNNAMED: Final = object()
"""A quota that is not for this part of a client, as opposed to None, which is for all without their own."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whose quota it is: names by ``user`` and ``client-id``, or by ``ip``.

    The name None is every name without its own.
    """

    names: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, names: Mapping[str, str | None]) -> QuotaEntity:
        return cls(tuple(sorted(names.items(), reverse=True)))

    def __iter__(self) -> Iterator[tuple[str, str | None]]:
        return iter(self.names)


Quotas = Mapping[QuotaEntity, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quota of one client. ``shared_by``: all clients with the same user and client id here share it."""

    limit: float
    shared_by: tuple[str | None, str | None]


def find_quota(quotas: Quotas, kind: QuotaKind, user: str, client_id: str) -> ClientQuota | None:
    """Return the most specific quota of a client, in Kafka's order; None if it has none."""
    for user_name, client_name in (
        (user, client_id),
        (user, None),
        (user, _UNNAMED),
        (None, client_id),
        (None, None),
        (None, _UNNAMED),
        (_UNNAMED, client_id),
        (_UNNAMED, None),
    ):
        parts = ((USER, user_name), (CLIENT_ID, client_name))
        names: dict[str, Any] = {part: name for part, name in parts if name is not _UNNAMED}
        limit = quotas.get(QuotaEntity.of(names), {}).get(kind)
        if limit is not None:
            return ClientQuota(
                limit, (user if USER in names else None, client_id if CLIENT_ID in names else None)
            )
    return None


def find_address_quota(quotas: Quotas, address: str) -> ClientQuota | None:
    """Return how fast an address may connect; None if that is not limited."""
    for name in (address, None):
        limit = quotas.get(QuotaEntity.of({ADDRESS: name}), {}).get(QuotaKind.CONNECTION)
        if limit is not None:
            return ClientQuota(limit, (address, None))
    return None


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """What an entity must have: ``exact`` names by type, where None is the default, and types of any name."""

    exact: Mapping[str, str | None]
    any_name: frozenset[str]
    strict: bool
    """Whether it must have nothing else."""

    def matches(self, entity: QuotaEntity) -> bool:
        names = dict(entity)
        if self.strict and names.keys() != self.exact.keys() | self.any_name:
            return False
        return self.any_name <= names.keys() and all(
            each in names and names[each] == name for each, name in self.exact.items()
        )


def problem_with(kind: str, value: float) -> str:
    """Say what is wrong with a quota; empty if nothing is."""
    if kind not in set(QuotaKind):
        return f"there is no quota {kind!r}: use {_listed(QuotaKind)}"
    if not value > 0 or value == float("inf"):
        return f"{kind} must be greater than 0"
    if kind in _WHOLE and (value != int(value) or value >= _MOST.get(QuotaKind(kind), 2**63)):
        return f"{kind} must be a whole number per second"
    return ""


def problem_with_quotas(names: Iterable[tuple[str, str | None]], kinds: Iterable[str]) -> str:
    """Say which quotas are for others than these; empty if none is."""
    is_address = ADDRESS in dict(names)
    for kind in kinds:
        if (kind == QuotaKind.CONNECTION) != is_address:
            return f"{kind} is {'not ' if is_address else ''}a quota of an {ADDRESS}"
    return ""


def problem_with_entity(names: Iterable[tuple[str, str | None]]) -> str:
    """Say what is wrong with whom a quota is for; empty if nothing is."""
    types = [each for each, _ in names]
    if not types or len(set(types)) < len(types) or (ADDRESS in types and len(types) > 1):
        return "a quota is for a user, a client-id or both, or for an ip, each named once"
    if strangers := sorted(set(types) - {USER, CLIENT_ID, ADDRESS}):
        return f"there are no quotas by {', '.join(strangers)}: use {USER}, {CLIENT_ID} or {ADDRESS}"
    if any(name == "" for _, name in names):
        return "the name of a user or client-id must not be empty"
    if types == [ADDRESS]:
        return "".join(_problem_with_address(name) for _, name in names if name is not None)
    return ""


def _problem_with_address(name: str) -> str:
    try:
        canonical = address_as_in_java(name)
    except ValueError:
        return f"{name!r} is not an IP address"
    return "" if canonical == name else f"write the address {name} as {canonical}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
