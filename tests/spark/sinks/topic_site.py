"""Topics of one test, read as any consumer reads them, and faults in their writes."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream import Admin
from millstream.errors import NetworkError
from millstream.spark.sinks.topic.log import TopicLog
from millstream.spark.sinks.topic.sink import TopicSink

Append = Callable[..., int]


class TopicSite:
    """See ``Site``."""

    def __init__(self, servers: str, partitions: int = 2) -> None:
        self.servers = servers
        self.partitions = partitions
        self.name = f"out-{uuid.uuid4().hex}"
        self.sinks: list[TopicSink] = []

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.delete_topics([self.name + end for end in ("", "_rejected", "_progress")], missing_ok=True)

    def sink(self, **settings: Any) -> TopicSink:
        made = TopicSink(self.name, partitions=self.partitions, bootstrap_servers=self.servers, **settings)
        self.sinks.append(made)
        return made

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(record) for record in self.records(self.name)]

    def rejected(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.sinks[-1].read_rejected().to_pylist()
        return rows

    def records(self, topic: str) -> list[dict[str, Any]]:
        """All records, partition by partition, in their order."""
        with TopicLog({"bootstrap.servers": self.servers}) as log:
            if topic not in log.admin.list_topics():
                return []
            columns = ("partition", "offset", "timestamp", "key", "value", "headers")
            return [
                record
                for each in log.partitions(topic)
                for record in log.read(each, 0, columns)
                if record["value"] is not None
            ]

    def _row(self, record: dict[str, Any]) -> dict[str, Any]:
        source = record["headers"][-2]["value"].decode().split("/")
        position = (source[0], int(source[1]), int(source[2]))
        tables = next(sink._tables for sink in reversed(self.sinks) if sink._tables is not None)
        if tables.positions[0] == "topic":
            return record | dict(zip(tables.positions, position, strict=True))
        value = json.loads(record["value"])
        row = {name: _typed(each, tables.rows.field(name).type) for name, each in value.items()}
        return row | dict(zip(tables.positions, position, strict=True)) | {"_timestamp": record["timestamp"]}

    # -- faults

    def refusing(self) -> AbstractContextManager[None]:
        def append(do: Append, *arguments: Any) -> int:
            raise NetworkError("the broker is away")

        return _instead(append)

    def answer_lost(self) -> AbstractContextManager[None]:
        def append(do: Append, *arguments: Any) -> int:
            do(*arguments)
            raise NetworkError("the answer was lost")

        return _instead(append)

    def swallowing(self) -> AbstractContextManager[None]:
        return _instead(lambda do, *arguments: 0)


@contextmanager
def _instead(replacement: Callable[..., int]) -> Iterator[None]:
    original = TopicLog.append
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicLog, "append", lambda self, *rest: replacement(original, self, *rest))
        yield


def _typed(value: Any, kind: pa.DataType) -> Any:
    """A value as it was before it became JSON."""
    if value is None:
        return None
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value).astimezone(UTC)
    return float(value) if pa.types.is_floating(kind) else value
