"""Sink kinds: what ``--to`` may name, each declared once as a ``SinkKind``.

The scheme of an address selects the kind: ``delta`` in ``delta:lake/orders``. Any installed package can add
one, as an entry point of the group ``millstream.sinks``. millstream's own are listed here instead, so that
they are found without reading the metadata of every installed package.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigError
from millstream.suggestions import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from millstream.spark.sinks.base import Sink

ENTRY_POINTS: Final = "millstream.sinks"
OWN: Final = {
    "delta": "millstream.spark.sinks.delta.kind:DELTA",
    "postgresql": "millstream.spark.sinks.postgres.kind:POSTGRESQL",
    "postgres": "millstream.spark.sinks.postgres.kind:POSTGRESQL",
    "topic": "millstream.spark.sinks.topic.kind:TOPIC",
}
"""By scheme, the module and name of the kind, as in an entry point. The modules import nothing heavy."""


@dataclass(frozen=True, slots=True)
class SinkAddress:
    """An address as the user typed it, with what a sink may need to know about the load."""

    text: str
    """The whole address, such as ``delta:lake/orders``."""
    topics: Sequence[str] = ()
    """The topics to load; empty where a command only looks at the sink."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Client settings of the brokers that are read from."""
    target_file_size: int | None = None
    """In bytes; given only to kinds that have files."""
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    """How an object store is reached; given only to kinds that have files."""

    @property
    def rest(self) -> str:
        """What follows the scheme."""
        return self.text.partition(":")[2]


@dataclass(frozen=True, slots=True)
class SinkKind:
    """One kind of sink. Import heavy packages inside ``make``: help texts load the declaration, too."""

    usage: str
    """How an address is written, placeholders in capitals: ``delta:DIR``."""
    make: Callable[[SinkAddress], Sink]
    """Construct the sink without connecting to it; raise ConfigError for a bad address."""
    missing: Callable[[SinkAddress, Sink], str | None] = lambda _address, _sink: None
    """Where the table does not exist, a sentence that says so and what to check; else None."""
    on_brokers: bool = False
    """Whether the sink is on the brokers that are read from: commands then check first that they answer."""
    has_files: bool = False
    """Whether the sink writes files: it then takes ``target_file_size`` and ``storage_options``, and reports
    count the files."""

    @property
    def prefix(self) -> str:
        """What a shell completes: the usage up to its first placeholder."""
        return re.split("[A-Z]", self.usage, maxsplit=1)[0]


def sink_for(
    address: str,
    topics: Sequence[str],
    settings: Mapping[str, object],
    target_file_size: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Sink:
    """Construct the sink at ``address``; the parameters are those of ``SinkAddress``.

    Raises ConfigError for an unknown scheme or a bad address, and says which addresses there are.
    """
    kind = kind_of(address)
    if target_file_size is not None and not kind.has_files:
        raise ConfigError(
            f"target_file_size is for sinks with files, and {kind.usage} has none: leave it out",
            setting="target_file_size",
        )
    if storage_options and not kind.has_files:
        raise ConfigError(
            f"storage options are for sinks with files, and {kind.usage} has none: leave them out"
        )
    return kind.make(SinkAddress(address, topics, settings, target_file_size, storage_options or {}))


def missing_table(
    address: str,
    sink: Sink,
    settings: Mapping[str, object],
    storage_options: Mapping[str, object] | None = None,
) -> str | None:
    """Why there is no table at ``address`` and what to check; None where it exists or may exist."""
    found = SinkAddress(address, (), settings, storage_options=storage_options or {})
    return kind_of(address).missing(found, sink)


def kind_of(address: str) -> SinkKind:
    """The kind that the scheme of ``address`` selects; raises ConfigError for an unknown one."""
    kind = find_kind(address)
    if kind is None:
        others = [entry.name for entry in _installed()]
        scheme, colon, _ = address.partition(":")
        near = did_you_mean(scheme, [*OWN, *others], show="{}:".format) if colon else ""
        hint = f"{near} Use" if near else "use"
        raise ConfigError(f"{_shown(address)} is not a known sink: {hint} {usages(others)}")
    return kind


def find_kind(address: str) -> SinkKind | None:
    """The kind that the scheme of ``address`` selects; None for an unknown one."""
    scheme, colon, _ = address.partition(":")
    scheme = scheme.lower()
    if colon and scheme in OWN:
        return _own(scheme)
    found = [entry for entry in _installed() if colon and entry.name == scheme]
    return _loaded(found[0]) if found else None


def usages(others: Sequence[str] = ()) -> str:
    """How addresses are written, for help and errors: of millstream's own kinds, and of other schemes."""
    *first, last = [*dict.fromkeys(_own(scheme).usage for scheme in OWN), *(f"{name}:…" for name in others)]
    return f"{', '.join(first)} or {last}"


def prefixes() -> list[str]:
    """What a shell offers for an address: each kind's prefix, those of installed packages included."""
    return [*dict.fromkeys(_own(scheme).prefix for scheme in OWN), *(f"{e.name}:" for e in _installed())]


def _own(scheme: str) -> SinkKind:
    module, _, name = OWN[scheme].partition(":")
    kind: SinkKind = vars(importlib.import_module(module))[name]
    return kind


def _installed() -> list[EntryPoint]:
    """Schemes that other packages declare. This reads the metadata of every installed package."""
    from importlib.metadata import entry_points

    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    return [entry for scheme, entry in found.items() if scheme not in OWN]


def _loaded(entry: EntryPoint) -> SinkKind:
    where = f"the sink {entry.name}: of the package {entry.dist.name if entry.dist else '?'} ({entry.value})"
    try:
        kind = entry.load()
    except Exception as error:
        raise ConfigError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(kind, SinkKind):
        raise ConfigError(f"{where} is not a SinkKind but a {type(kind).__name__}")
    return kind


def _shown(address: str) -> str:
    """The address without a user or password: it may be a URL of something else."""
    scheme, separator, rest = address.partition("://")
    return repr(f"{scheme}://{rest.rpartition('@')[2]}" if separator else address)
