"""The one look that the coordinator takes inside the members' metadata: which topics consumers want.

It needs this to keep the offsets of topics in use. Everything else in there is the members' own business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.errors import CorruptMessage
from millstream.wire.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER: Final = "consumer"
"""The protocol type of consumers; others (Connect's, for example) have metadata of their own form."""

_VERSION_BYTES: Final = 2


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics in these subscriptions; None when one of them cannot be read.

    Version 0 is the beginning of every later version, so reading that much suits members of any age.
    """
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            view = memoryview(subscription)
            topics.update(ConsumerProtocolSubscription.decode(view[_VERSION_BYTES:], 0).topics)
        except CorruptMessage:
            return None
    return frozenset(topics)
