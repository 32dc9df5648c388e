"""Which quotas there are, which of them a client has, and who shares it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"


class QuotaKind(StrEnum):
    """What is limited, by Kafka's names."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whose quota it is: names by ``user`` and ``client-id``; the name None is every name without its own."""

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
        (user, ""),
        (None, client_id),
        (None, None),
        (None, ""),
        ("", client_id),
        ("", None),
    ):
        names = {}
        if user_name != "":
            names[USER] = user_name
        if client_name != "":
            names[CLIENT_ID] = client_name
        limit = quotas.get(QuotaEntity.of(names), {}).get(kind)
        if limit is not None:
            shared_by = (None if user_name == "" else user, None if client_name == "" else client_id)
            return ClientQuota(limit, shared_by)
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
    if kind != QuotaKind.REQUEST and (value != int(value) or value >= 2**63):
        return f"{kind} must be a whole number of bytes per second"
    return ""


def problem_with_entity(names: Iterable[tuple[str, str | None]]) -> str:
    """Say what is wrong with whom a quota is for; empty if nothing is."""
    types = [each for each, _ in names]
    if not types or len(set(types)) < len(types):
        return "a quota is for a user, a client-id or both, each named once"
    if strangers := sorted(set(types) - {USER, CLIENT_ID}):
        return f"this broker has no quotas by {', '.join(strangers)}: use {USER} or {CLIENT_ID}"
    if any(name == "" for _, name in names):
        return "the name of a user or client-id must not be empty"
    return ""


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
