"""Finds the handler of an API: the function that is marked with ``@handles`` in the family's module.

The family ``fetch`` declares its messages in ``wire/messages/fetch.py`` and its handlers in
``broker/handlers/fetch.py``. That module is imported when the first request of the family arrives. Requests
for the group coordinator have no handler here: ``Broker.dispatch`` passes them on.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from millstream.broker import handlers
from millstream.wire.schema import Api

Handler = Callable[[Any, Any, Any], Any]
"""``(broker, request, context) -> response``, or None if the handler replies through ``context`` later."""
_H = TypeVar("_H", bound=Handler)


_HANDLERS: Final[dict[Api, Handler]] = {}
_NOTES: Final[dict[Api, str]] = {}


def handles(api: Api, *, note: str = "") -> Callable[[_H], _H]:
    """Mark the function that answers an API. ``note`` is for the docs: how the answer differs from Kafka."""

    def register(handler: _H) -> _H:
        _HANDLERS[api] = handler
        _NOTES[api] = note
        return handler

    return register


def handler_of(api: Api) -> Handler:
    """Return the function that answers requests of this API."""
    handler = _HANDLERS.get(api)
    if handler is None:
        importlib.import_module(f"{handlers.__name__}.{api.family}")
        handler = _HANDLERS[api]
    return handler


def handler_notes() -> Mapping[Api, str]:
    """Return the note of every handler."""
    for module in pkgutil.iter_modules(handlers.__path__, f"{handlers.__name__}."):
        importlib.import_module(module.name)
    return _NOTES
