"""Reads the topics in the subscriptions of consumers, to keep the offsets of topics in use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.errors import CorruptMessage
from millstream.wire.consumer_protocol import ConsumerProtocolSubscription

CONSUMER: Final = "consumer"
"""The protocol type of consumers; others, such as Connect, have other metadata."""

_VERSION_BYTES: Final = 2


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return all topics in these subscriptions; None if one of them cannot be read.

    Every later version begins with version 0, so that is all that is read.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            view = memoryview(subscription)
            topics.update(ConsumerProtocolSubscription.decode(view[_VERSION_BYTES:], 0).topics)
        except CorruptMessage:
            return None
    return frozenset(topics)
