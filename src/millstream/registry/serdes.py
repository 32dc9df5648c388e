"""RegistryDeserializer and RegistrySerializer: each record is read with the schema it was written with.

Avro is read and written by fastavro, JSON Schema as JSON (it is not validated). Protobuf is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from millstream.config.registry import RegistryWriterSettings
from millstream.errors import ConfigError, SchemaNotFoundError, SerializationError
from millstream.model import Header
from millstream.registry import avro, framing
from millstream.registry.client import RegistryClient
from millstream.registry.schemas import RegisteredSchema
from millstream.serde import FORMATS, Schema

_PROTOBUF: Final = "its schema is Protobuf, which is not supported yet: use a deserializer of your own"
_MAX_SUBJECTS: Final = 1_000


class RegistryDeserializer:
    """Reads keys or values (``part``) in Confluent's wire format.

    Raises SchemaNotFoundError's words as a ValueError, as the record is at fault; other errors of the
    registry are not about the record, and are raised as they are.
    """

    def __init__(self, client: RegistryClient, part: str = "value", *, max_schemas: int = 1_000) -> None:
        self._client = client
        self._part = part
        self._reader = lru_cache(maxsize=max_schemas)(self._make_reader)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes, /) -> Any:
        """Return the value; ``topic`` is not needed."""
        schema, payload = framing.split(self._part, headers, data)
        return self._reader(schema)(payload)

    def _make_reader(self, schema: int | UUID) -> Callable[[bytes], Any]:
        try:
            known = self._client.by_id(schema) if isinstance(schema, int) else self._client.by_guid(schema)
            referenced = {name: each.text for name, each in self._client.referenced(known).items()}
        except SchemaNotFoundError as error:
            kind = "id" if isinstance(schema, int) else "GUID"
            raise ValueError(f"its schema has the unknown {kind} {schema}: {error}") from error
        if known.type == "AVRO":
            reader: Callable[[bytes], Any] = avro.reader(known.text, referenced)
            return reader
        if known.type == "JSON":
            found = FORMATS["json"].deserialize
            assert found is not None, "JSON needs no schema to be read"
            return found
        raise ValueError(_PROTOBUF if known.type == "PROTOBUF" else f"its schema is of type {known.type}")


class RegistrySerializer:
    """Writes keys or values (``part``) in Confluent's wire format.

    The schema is ``schema``, which is registered or looked up under the subject, or the latest of the
    subject. It is asked for once per topic.
    """

    def __init__(
        self,
        client: RegistryClient,
        schema: Schema | RegisteredSchema | None = None,
        part: str = "value",
        *,
        auto_register: bool = True,
        use_latest: bool = False,
        normalize: bool = False,
        strategy: str = "topic",
    ) -> None:
        if schema is None and (not use_latest or strategy != "topic"):
            raise ConfigError(
                "a schema is missing: give one, or write with the latest one of a topic's subject"
            )
        self._client = client
        self._part = part
        self._schema = schema if schema is None else _given(schema)
        self._auto_register = auto_register and not use_latest
        self._use_latest = use_latest
        self._normalize = normalize
        self._strategy = strategy
        self._writer = lru_cache(maxsize=_MAX_SUBJECTS)(self._make_writer)

    def serialize(self, topic: str, headers: list[Header], value: Any, /) -> bytes:
        """Return the schema's id and the value; ``headers`` stay as they are."""
        schema_id, write = self._writer(topic)
        return framing.with_id(schema_id, write(value))

    def subject(self, topic: str) -> str:
        """Return the subject of the schema for a topic."""
        if self._strategy == "topic":
            return f"{topic}-{self._part}"
        assert self._schema is not None, "checked when it was made"
        name = avro.name_of(self._schema.text)
        return name if self._strategy == "record" else f"{topic}-{name}"

    def _make_writer(self, topic: str) -> tuple[int, Callable[[Any], bytes]]:
        subject = self.subject(topic)
        try:
            schema = self._registered(subject)
        except SchemaNotFoundError as error:
            hint = "" if self._use_latest else ", or set auto_register_schemas"
            raise SerializationError(
                f"the subject {subject} does not have the schema: register it{hint} ({error})"
            ) from error
        assert schema.id is not None, "registered schemas have an id"
        if schema.type == "AVRO":
            referenced = {name: each.text for name, each in self._client.referenced(schema).items()}
            return schema.id, avro.writer(schema.text, referenced)
        if schema.type == "JSON":
            write = FORMATS["json"].serialize
            assert write is not None, "JSON needs no schema to be written"
            return schema.id, write
        raise SerializationError(f"the schema of {subject} is {schema.type}, which is not supported yet")

    def _registered(self, subject: str) -> RegisteredSchema:
        """Return the schema to write with, with its id."""
        if self._use_latest:
            return self._client.latest(subject)
        assert self._schema is not None, "checked when it was made"
        given = self._schema
        if self._auto_register:
            schema_id = self._client.register(subject, given, normalize=self._normalize)
        else:
            found = self._client.lookup(subject, given, normalize=self._normalize).id
            if found is None:
                raise SerializationError(f"the registry did not say which id the schema of {subject} has")
            schema_id = found
        return RegisteredSchema(given.text, given.type, given.references, id=schema_id)


def serializer_of(settings: RegistryWriterSettings, part: str) -> RegistrySerializer:
    """Return the serializer of a producer's settings, for keys or values (``part``)."""
    return RegistrySerializer(
        RegistryClient.of(settings),
        getattr(settings, f"registry_{part}_schema"),
        part,
        auto_register=settings.auto_register_schemas,
        use_latest=settings.use_latest_version,
        normalize=settings.normalize_schemas,
        strategy=getattr(settings, f"{part}_subject_name_strategy"),
    )


def _given(schema: Schema | RegisteredSchema) -> RegisteredSchema:
    """Return a user's Avro schema, checked to be JSON."""
    if isinstance(schema, RegisteredSchema):
        return schema
    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the Avro schema is not JSON: {error}") from error
    return RegisteredSchema(text)
