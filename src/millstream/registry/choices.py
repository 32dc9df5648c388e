"""The (de)serializers that a client's settings name: the registry's, or those of ``serde``.

The registry is imported only where it is named: HTTP and TLS take a while to load.
"""

from __future__ import annotations

from millstream.config import ConsumerConfig, ProducerConfig
from millstream.config.registry import REGISTRY
from millstream.serde import Deserializer, Serializer, WithTopic, deserializer, serializer


def deserializers(config: ConsumerConfig) -> tuple[Deserializer | WithTopic, Deserializer | WithTopic]:
    """Return the deserializers of keys and values."""
    choices = {"key": config.key_deserializer, "value": config.value_deserializer}
    if REGISTRY not in [each for each in choices.values() if isinstance(each, str)]:
        key, value = (deserializer(choice, f"{part}_deserializer") for part, choice in choices.items())
        return key, value
    from millstream.registry.client import RegistryClient
    from millstream.registry.serdes import RegistryDeserializer

    client = RegistryClient.of(config)
    limit = config.registry_max_schemas
    key, value = (
        WithTopic(RegistryDeserializer(client, part, max_schemas=limit).deserialize)
        if isinstance(choice, str) and choice == REGISTRY
        else deserializer(choice, f"{part}_deserializer")
        for part, choice in choices.items()
    )
    return key, value


def serializers(config: ProducerConfig) -> tuple[Serializer | WithTopic, Serializer | WithTopic]:
    """Return the serializers of keys and values."""
    key = _serializer(config, config.key_serializer, "key")
    return key, _serializer(config, config.value_serializer, "value")


def _serializer(config: ProducerConfig, choice: object, part: str) -> Serializer | WithTopic:
    if isinstance(choice, str) and choice == REGISTRY:
        from millstream.registry.serdes import serializer_of

        return WithTopic(serializer_of(config, part).serialize)
    return serializer(choice, f"{part}_serializer")  # type: ignore[call-overload, no-any-return]
