"""Schemas as a registry holds them, and how its JSON is read: everything that it sends is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
MAX_REFERENCES: Final = 1_000
"""The most schemas that one schema may refer to, directly and through others."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses; in Avro, ``name`` is the full name of its type."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, as text; ``id``, ``guid``, ``subject`` and ``version`` as far as the answer has them."""

    text: str
    type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    id: int | None = None
    guid: str | None = None
    subject: str | None = None
    version: int | None = None

    def request(self) -> dict[str, Any]:
        """Return the body of a request to register it or to look it up."""
        body: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":  # the default, which the oldest registries do not know by name
            body["schemaType"] = self.type
        if self.references:
            body["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version}
                for each in self.references
            ]
        return body


def read_schema(answer: Any, *, schema_id: int | None = None) -> RegisteredSchema:
    """Read a schema from a registry's answer. Raises ValueError or a LookupError for anything else."""
    kind = answer.get("schemaType") or "AVRO"
    if not isinstance(kind, str):
        raise ValueError("schemaType is not a string")
    references = answer.get("references") or []
    if len(references) > MAX_REFERENCES:
        raise ValueError(f"it has more than {MAX_REFERENCES} references")
    return RegisteredSchema(
        text=_text(answer["schema"]),
        type=kind,
        references=tuple(
            Reference(_text(each["name"]), _text(each["subject"]), read_number(each["version"]))
            for each in references
        ),
        id=schema_id if schema_id is not None else _optional_number(answer.get("id")),
        guid=None if answer.get("guid") is None else _text(answer["guid"]),
        subject=None if answer.get("subject") is None else _text(answer["subject"]),
        version=_optional_number(answer.get("version")),
    )


def read_number(value: object) -> int:
    """Read an id or a version."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError("an id or version is not a number from 0 to 2147483647")
    return value


def _optional_number(value: object) -> int | None:
    return None if value is None else read_number(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a name or schema is not a string")
    return value
