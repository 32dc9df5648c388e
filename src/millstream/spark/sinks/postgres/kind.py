"""The sink kind ``postgresql://…``: a table of a PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.extras import require
from millstream.spark.sinks.kinds import SinkAddress, SinkKind

if TYPE_CHECKING:
    from millstream.spark.sinks.base import Sink


def _make(address: SinkAddress) -> Sink:
    """Without ``table`` in the address, the table has the name of the topic, if there is only one."""
    require("psycopg", "postgres")
    from millstream.spark.sinks.postgres.names import with_default_table
    from millstream.spark.sinks.postgres.sink import PostgresSink

    alone = len(address.topics) == 1
    return PostgresSink(with_default_table(address.text, address.topics[0]) if alone else address.text)


def _missing(_address: SinkAddress, sink: Sink) -> str | None:
    from millstream.spark.sinks.postgres.sink import PostgresSink

    assert isinstance(sink, PostgresSink)
    return None if sink.exists() else f"there is no table {sink.name}: check its name and schema"


POSTGRESQL: Final = SinkKind("postgresql://USER@HOST/DATABASE?table=NAME", _make, _missing)
