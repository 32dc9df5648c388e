"""The sink kind ``topic:NAME``: a topic of the brokers that are read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigError
from millstream.spark.sinks.kinds import SinkAddress, SinkKind
from millstream.suggestions import did_you_mean

if TYPE_CHECKING:
    from millstream.spark.sinks.base import Sink


def _make(address: SinkAddress) -> Sink:
    from millstream.spark.sinks.topic.sink import TopicSink

    if address.rest in address.topics:
        raise ConfigError(f"topic:{address.rest} would load the topic into itself: choose another name")
    return TopicSink(address.rest, settings=address.settings)


def _missing(address: SinkAddress, _sink: Sink) -> str | None:
    from millstream.admin import Admin

    with Admin(address.settings) as admin:
        topics = admin.list_topics()
    if address.rest in topics:
        return None
    hint = did_you_mean(address.rest, topics, show=repr) or "check the name, 'millstream topic list' has them"
    return f"there is no topic {address.rest!r}: {hint}"


TOPIC: Final = SinkKind("topic:NAME", _make, _missing, on_brokers=True)
