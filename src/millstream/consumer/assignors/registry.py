"""The built-in assignors, and from partition_assignment_strategy to assignors in order of preference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from millstream.consumer.assignors.base import Assignor, RebalanceProtocol
from millstream.consumer.assignors.range import RangeAssignor
from millstream.consumer.assignors.roundrobin import RoundRobinAssignor
from millstream.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from millstream.errors import ConfigError
from millstream.suggestions import did_you_mean

AssignorSpec = str | type[Assignor] | Assignor
"""A name, Kafka's class name, a class or an object."""

BUILT_IN: Final = (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
"""Each is known by its ``name`` and by Kafka's class name, which is ours; the docs list these."""
_KAFKA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_BY_NAME: Final[dict[str, type[Assignor]]] = {
    **{assignor.name: assignor for assignor in BUILT_IN},
    **{_KAFKA_PACKAGE + assignor.__name__: assignor for assignor in BUILT_IN},
}


def resolve_assignors(spec: AssignorSpec | Iterable[object]) -> tuple[Assignor, ...]:
    """Return the assignors that a setting names; a string may name several, with commas between.

    Raises ConfigError for an unknown name, something that is no assignor, two assignors with one name, none
    at all, or assignors without a rebalance protocol in common.
    """
    assignors = tuple(_resolve(item) for item in _items(spec))
    if not assignors:
        raise ConfigError("partition_assignment_strategy is empty: name at least one assignor")
    names = [assignor.name for assignor in assignors]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"partition_assignment_strategy has two assignors named {name!r}")
    common_protocol(assignors)
    return assignors


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The most advanced rebalance protocol that all of them know: the one that the consumer follows."""
    shared = set(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not shared:
        known = "; ".join(
            f"{assignor.name}: {', '.join(protocol.name for protocol in assignor.protocols)}"
            for assignor in assignors
        )
        raise ConfigError(f"the assignors have no rebalance protocol in common ({known})")
    return max(shared)


def _items(spec: AssignorSpec | Iterable[object]) -> list[object]:
    if isinstance(spec, str):
        return [name for part in spec.split(",") if (name := part.strip())]
    if isinstance(spec, type | Assignor) or not isinstance(spec, Iterable):
        return [spec]
    return list(spec)


def _resolve(item: object) -> Assignor:
    assignor = item
    if isinstance(item, str):
        assignor = _by_name(item.strip())()
    elif isinstance(item, type) and issubclass(item, Assignor):
        try:
            assignor = item()
        except TypeError as error:
            raise ConfigError(
                f"{item.__name__} cannot be created, pass an object instead: {error}"
            ) from error
    if not isinstance(assignor, Assignor):
        raise ConfigError(f"{item!r} is not an assignor: derive your class from Assignor")
    if not isinstance(getattr(assignor, "name", None), str) or not assignor.name:
        raise ConfigError(f"{type(assignor).__name__} has no name: set its class attribute name")
    return assignor


def _by_name(name: str) -> type[Assignor]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    spellings = {spelling: repr(each.name) for each in BUILT_IN for spelling in (each.name, each.__name__)}
    hint = did_you_mean(name.rpartition(".")[2], spellings, show=spellings.__getitem__, cutoff=0.5)
    known = ", ".join(dict.fromkeys(spellings.values()))
    raise ConfigError(f"unknown assignor {name!r}: {hint or f'known are {known}'}")
