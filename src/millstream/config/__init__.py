"""The settings of consumer, producer and admin, with Kafka's names (in snake_case), defaults and units.

A setting of Kafka's that millstream does not support is refused with the reason rather than ignored. A
default that depends on other settings is set in ``derive``. Contradictions are checked in ``__post_init__``,
so that no instance can hold one.
"""

from millstream.config.admin import AdminConfig
from millstream.config.client import ClientConfig
from millstream.config.consumer import ConsumerConfig
from millstream.config.producer import ProducerConfig
from millstream.settings import Address, parse_address

__all__ = ["Address", "AdminConfig", "ClientConfig", "ConsumerConfig", "ProducerConfig", "parse_address"]
