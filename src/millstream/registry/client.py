"""RegistryClient: Confluent's REST API. Schemas by id, GUID and version never change, and are remembered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeVar
from urllib.parse import quote
from uuid import UUID

from millstream.config.registry import RegistrySettings
from millstream.errors import RegistryError
from millstream.registry.http import RegistryHttp
from millstream.registry.schemas import MAX_REFERENCES, RegisteredSchema, read_number, read_schema

_Read = TypeVar("_Read")
_LEVEL: Final = re.compile(r"[A-Z_]{1,40}")


class RegistryClient:
    """Asks a schema registry. Any thread may use it. ::

        client = RegistryClient(registry_url="http://localhost:8081")
        print(client.latest("customerCountries-value").text)

    Settings are those of ``RegistrySettings``, as keywords or as a mapping with dotted names.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        self._start(RegistrySettings.from_settings(settings, keywords))

    @classmethod
    def of(cls, settings: RegistrySettings) -> RegistryClient:
        """Return the client for settings that were read already, such as a consumer's."""
        made = cls.__new__(cls)
        made._start(settings)
        return made

    def _start(self, settings: RegistrySettings) -> None:
        settings.check_registry({})
        self._http = RegistryHttp(settings)
        limit = settings.registry_max_schemas
        self._by_id = lru_cache(maxsize=limit)(self._ask_by_id)
        self._by_guid = lru_cache(maxsize=limit)(self._ask_by_guid)
        self._by_version = lru_cache(maxsize=limit)(self._ask_by_version)

    # -- schemas

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with an id; raises SchemaNotFoundError for an unknown one."""
        return self._by_id(schema_id)

    def by_guid(self, guid: UUID | str) -> RegisteredSchema:
        """Return the schema with a GUID; raises SchemaNotFoundError for an unknown one."""
        return self._by_guid(UUID(str(guid)))

    def by_version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject."""
        return self._by_version(subject, version)

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version of a subject, as it is now."""
        return self._schema("GET", f"/subjects/{_quoted(subject)}/versions/latest")

    def register(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> int:
        """Register a schema under a subject, unless it is there already; returns its id."""
        path = f"/subjects/{_quoted(subject)}/versions{_normalized(normalize)}"
        answer = self._http.request("POST", path, schema.request())
        return self._read(lambda: read_number(answer["id"]))

    def lookup(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> RegisteredSchema:
        """Find a schema under a subject; raises SchemaNotFoundError if it is not registered there."""
        path = f"/subjects/{_quoted(subject)}{_normalized(normalize)}"
        return self._schema("POST", path, schema.request())

    def referenced(self, schema: RegisteredSchema) -> dict[str, RegisteredSchema]:
        """Return the schemas that a schema refers to, also through others, by their names."""
        found: dict[str, RegisteredSchema] = {}
        waiting = list(schema.references)
        while waiting:
            reference = waiting.pop()
            if reference.name in found:
                continue
            if len(found) == MAX_REFERENCES:
                raise RegistryError(f"a schema has more than {MAX_REFERENCES} references")
            found[reference.name] = self.by_version(reference.subject, reference.version)
            waiting += found[reference.name].references
        return found

    # -- subjects and their settings

    def subjects(self) -> list[str]:
        """Return the names of all subjects."""
        answer = self._http.request("GET", "/subjects")
        return self._read(lambda: [str(each) for each in answer])

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject."""
        answer = self._http.request("GET", f"/subjects/{_quoted(subject)}/versions")
        return self._read(lambda: [read_number(each) for each in answer])

    def compatibility(self, subject: str | None = None) -> str:
        """Return the compatibility level of a subject, or the registry's own, such as BACKWARD."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}?defaultToGlobal=true"
        answer = self._http.request("GET", path)
        return self._read(lambda: _level(answer["compatibilityLevel"]))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the compatibility level of a subject, or the registry's own."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._http.request("PUT", path, {"compatibility": level})

    # -- asking

    def _ask_by_id(self, schema_id: int) -> RegisteredSchema:
        return self._schema("GET", f"/schemas/ids/{schema_id}", schema_id=schema_id)

    def _ask_by_guid(self, guid: UUID) -> RegisteredSchema:
        return self._schema("GET", f"/schemas/guids/{guid}")

    def _ask_by_version(self, subject: str, version: int) -> RegisteredSchema:
        return self._schema("GET", f"/subjects/{_quoted(subject)}/versions/{version}")

    def _schema(
        self, method: str, path: str, body: object = None, *, schema_id: int | None = None
    ) -> RegisteredSchema:
        answer = self._http.request(method, path, body)
        return self._read(lambda: read_schema(answer, schema_id=schema_id))

    @staticmethod
    def _read(reader: Callable[[], _Read]) -> _Read:
        """Read an answer; RegistryError says that it is none of a schema registry."""
        try:
            return reader()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise RegistryError(
                f"the answer is not that of a schema registry ({error!r}): check registry_url"
            ) from None


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _normalized(normalize: bool) -> str:
    return "?normalize=true" if normalize else ""


def _level(value: object) -> str:
    if not isinstance(value, str) or not _LEVEL.fullmatch(value):
        raise ValueError("it is not a compatibility level")
    return value
