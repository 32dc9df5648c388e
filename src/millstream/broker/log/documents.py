"""Reads the broker's small JSON files, which carry the version of their format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from millstream.broker.log.files import StrPath
from millstream.errors import KafkaStorageError, MillstreamError

_T = TypeVar("_T")


def parse_document(path: StrPath, data: bytes, version: int, parse: Callable[[Any], _T]) -> _T:
    """Parse what a file holds. Raises KafkaStorageError, with ``path``, if it is damaged."""
    try:
        document = json.loads(data)
        if document["version"] != version:
            raise ValueError(f"format {document['version']!r} is not known")
        return parse(document)
    except (ValueError, LookupError, TypeError, AttributeError, MillstreamError) as error:
        raise KafkaStorageError(f"{path} is damaged ({error}): restore it from a copy") from error
