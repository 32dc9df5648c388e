"""Finds the APIs that millstream speaks by their key; ``wire.messages`` declares them, a family per module.

The versions are those of Apache Kafka 4.1. A broker offers all of them; a client uses the highest that both
sides know.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping

from millstream.wire import messages
from millstream.wire.schema import Api


def find(key: int) -> Api | None:
    """Return the API with this key, importing the modules that declare APIs as far as needed."""
    return Api.declared.get(key) or all_apis().get(key)


@functools.cache
def all_apis() -> Mapping[int, Api]:
    """Return every API by its key, in the order of the keys."""
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(Api.declared.items()))
