"""What a sink may offer beyond ``Sink``: each protocol is optional, and a load uses those that a sink has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from millstream.spark.sinks.base import Sink, Tables

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class ChecksTables(Protocol):
    """Knows what it cannot hold before anything is connected or started."""

    def check(self, tables: Tables) -> None:
        """Raise ConfigError or SinkError for tables that the sink cannot hold; connect to nothing."""


@runtime_checkable
class FindsRangeStart(Protocol):
    """Lets a load rewind whose SQL makes one row of many records."""

    def range_start(self, topic: str, partition: int, offset: int) -> int | None:
        """The greatest position of a row of this partition's topic that is not past ``offset``."""


@runtime_checkable
class ListsGroups(Protocol):
    """Lets a load refuse a second group that would load a topic into the same table again."""

    def other_groups(self, group_id: str, topics: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """The groups, other than ``group_id``, that have progress of each topic."""


@runtime_checkable
class StreamsRejected(Protocol):
    """Lets a replay read rejected rows in batches; without it a replay holds all of them at once."""

    def rejected_batches(self) -> Iterator[pa.RecordBatch]:
        """The rejected rows as they are now, in any order; goes on while ``readmit`` takes rows out."""


@runtime_checkable
class RemembersPartitions(Protocol):
    """Lets a load leave ``partition_by`` out after the first time."""

    def partitioned_by(self) -> tuple[str, ...]:
        """What the existing table is partitioned by, as in ``partition_by``: ``date(_timestamp) AS day``.

        Empty where there is no table yet, or one without partitions.
        """


@runtime_checkable
class WritesTopics(Protocol):
    """Lets a load refuse to load a topic into itself."""

    def written_topics(self, servers: str) -> tuple[str, ...]:
        """The topics that the sink writes on the brokers at ``servers``."""


@runtime_checkable
class HasNames(Protocol):
    """Has several names, such as paths: commits carry the first, and those with any of them are its own."""

    names: tuple[str, ...]


def names_of(sink: Sink) -> tuple[str, ...]:
    """The names of a sink, the one that commits carry first."""
    return sink.names if isinstance(sink, HasNames) else (sink.name,)


@runtime_checkable
class SaysIfReplaces(Protocol):
    """Whether a rewind replaces the rows that it reads again; sinks that say nothing do."""

    replaces: bool


@runtime_checkable
class SaysIfJoinsFiles(Protocol):
    """Whether ``compact`` has files to join; it is refused where it has none."""

    joins_files: bool


@runtime_checkable
class BoundsCycleRecords(Protocol):
    """The most records of a cycle, unless the user bounds it."""

    cycle_records: int


@runtime_checkable
class BoundsCycleBytes(Protocol):
    """The most bytes of a cycle, unless the user bounds it."""

    cycle_bytes: int


@runtime_checkable
class RefusesRows(Protocol):
    """A ``TaskWriter`` of a sink that cannot hold some values."""

    def refusals(self, rows: pa.RecordBatch) -> pa.StringArray | None:
        """For each row why the sink cannot hold it, null where it can; None where it can hold all."""
