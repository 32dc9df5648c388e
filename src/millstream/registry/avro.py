"""Avro by registered schemas: references are put into the schema that uses them, then fastavro reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from millstream.extras import require
from millstream.serde import AvroDeserializer, AvroSerializer, Schema

_ROOT: Final = "$root"


def complete(text: str, referenced: Mapping[str, str]) -> Schema:
    """Return a schema with the types that it refers to. ``referenced`` are their schemas, by name."""
    if not referenced:
        return text
    schema = require("fastavro.schema", "avro")
    repository = require("fastavro.repository", "avro")
    texts = {**referenced, _ROOT: text}

    class Referenced(repository.AbstractSchemaRepository):  # type: ignore[misc, name-defined]
        def load(self, name: str) -> Any:
            if name not in texts:
                raise repository.SchemaRepositoryError(
                    f"it refers to {name}, which is not registered with it"
                )
            return json.loads(texts[name])

    loaded = schema.load_schema(_ROOT, repo=Referenced())
    return json.dumps(loaded) if isinstance(loaded, str) else loaded


def name_of(text: str) -> str:
    """Return the full name of a schema's type. Raises ValueError for a schema without a name."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        raise ValueError("its schema has no name, which the subject would be made from")
    name, space = schema["name"], schema.get("namespace")
    return name if not space or "." in name else f"{space}.{name}"


def is_bytes(text: str) -> bool:
    """Return whether the whole datum is bytes, which Confluent's serializers write without a length."""
    schema = json.loads(text)
    return schema in ("bytes", {"type": "bytes"})


def reader(text: str, referenced: Mapping[str, str]) -> Any:
    """Return what reads a datum that was written with this schema."""
    return bytes if is_bytes(text) else AvroDeserializer(complete(text, referenced))


def writer(text: str, referenced: Mapping[str, str]) -> Any:
    """Return what writes a datum with this schema."""
    return bytes if is_bytes(text) else AvroSerializer(complete(text, referenced))
