"""Schema registries: a client of Confluent's REST API, and serdes that write and read by registered schemas.

::

    Consumer(…, value_deserializer="registry", registry_url="http://localhost:8081")

``RegistryClient`` asks the registry. ``RegistryDeserializer`` and ``RegistrySerializer`` plug in as any other
serde. The wire format is in ``framing``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.registry.client import RegistryClient
    from millstream.registry.schemas import Reference, RegisteredSchema
    from millstream.registry.serdes import RegistryDeserializer, RegistrySerializer

__all__ = ["Reference", "RegisteredSchema", "RegistryClient", "RegistryDeserializer", "RegistrySerializer"]

_HOMES = {
    "Reference": "schemas",
    "RegisteredSchema": "schemas",
    "RegistryClient": "client",
    "RegistryDeserializer": "serdes",
    "RegistrySerializer": "serdes",
}


def __getattr__(name: str) -> object:
    """Import a name when it is first used: clients without a registry need none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
