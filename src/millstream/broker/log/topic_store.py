"""The stored topics of a broker: names, ids, partition counts and settings, in one file.

The file is replaced as a whole, and a change is durable before the call returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from millstream.broker.log.documents import parse_document
from millstream.broker.log.files import Files
from millstream.errors import InvalidTopicError

_FORMAT = 1
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicError for a name that Kafka does not allow; others are safe as file names."""
    if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicError(
            f"{name[:260]!r} is not a legal topic name: use letters, digits, '.', '_' and '-', at most 249"
        )


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """One topic. ``configs`` has only the settings that differ from the broker's defaults."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicStore:
    """All topics, by name and by id."""

    def __init__(self, path: str, files: Files) -> None:
        """Read the file, if there is one. Raises KafkaStorageError if it is damaged."""
        self._path = path
        self._files = files
        try:
            data: bytes | None = files.read(path)
        except FileNotFoundError:
            data = None
        self.is_new = data is None
        self._topics = {} if data is None else {topic.name: topic for topic in self._parse(data)}
        self._by_id = {topic.topic_id: topic for topic in self._topics.values()}

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[StoredTopic]:
        return iter(self._topics.values())

    def __contains__(self, name: object) -> bool:
        return name in self._topics

    def get(self, name: str) -> StoredTopic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> StoredTopic | None:
        return self._by_id.get(topic_id)

    def put(self, topics: Iterable[StoredTopic]) -> None:
        """Add topics, or replace those of the same name, durably. On OSError nothing has changed."""
        changed = dict(self._topics)
        for topic in topics:
            check_topic_name(topic.name)
            assert len(topic.topic_id) == 16, "a topic id has 16 bytes"
            changed[topic.name] = topic
        self._replace(changed)

    def remove(self, names: Iterable[str]) -> None:
        """Remove topics durably. On OSError nothing has changed."""
        gone = set(names)
        self._replace({name: topic for name, topic in self._topics.items() if name not in gone})

    def _replace(self, topics: dict[str, StoredTopic]) -> None:
        self._files.write_atomically(self._path, _encode(topics.values()))
        self._topics = topics
        self._by_id = {topic.topic_id: topic for topic in topics.values()}

    def _parse(self, data: bytes) -> list[StoredTopic]:
        return parse_document(
            self._path,
            data,
            _FORMAT,
            lambda document: [_parse_topic(name, fields) for name, fields in document["topics"].items()],
        )


def _encode(topics: Iterable[StoredTopic]) -> bytes:
    entries = {
        topic.name: {
            "id": str(UUID(bytes=topic.topic_id)),
            "partitions": topic.partitions,
            "configs": dict(topic.configs),
        }
        for topic in topics
    }
    return json.dumps({"version": _FORMAT, "topics": entries}, indent=1).encode()


def _parse_topic(name: str, fields: dict[str, Any]) -> StoredTopic:
    check_topic_name(name)
    partitions, configs = fields["partitions"], fields["configs"]
    if type(partitions) is not int or partitions < 1:
        raise ValueError(f"topic {name} has {partitions!r} partitions")
    if not all(isinstance(text, str) for pair in configs.items() for text in pair):
        raise ValueError(f"topic {name} has settings that are not text")
    return StoredTopic(name, UUID(fields["id"]).bytes, partitions, configs)
