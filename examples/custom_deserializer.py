"""Your own deserializer, which is any callable from bytes, and how to skip bytes that it cannot read.

The error has the topic, partition, offset and raw bytes. The position stays before the record: the consumer
can try again, stop, or seek past it, as here.
"""

import argparse
import json
import sys
from contextlib import suppress
from dataclasses import dataclass

from millstream import Consumer, TopicPartition
from millstream.errors import DeserializationError


@dataclass(frozen=True)
class Customer:
    """A deserialized value."""

    name: str
    country: str

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Customer":
        """Read a customer; whatever this raises becomes a DeserializationError."""
        fields = json.loads(raw)
        return cls(name=fields["name"], country=fields["country"])


def main() -> None:
    """Print customers until Ctrl-C, or until ``--max-records`` were read, good or bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customers")
    parser.add_argument("--group", default="custom-deserializer")
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    count = 0
    with (
        Consumer(
            bootstrap_servers=options.bootstrap_servers,
            group_id=options.group,
            value_deserializer=Customer.from_bytes,
            auto_offset_reset="earliest",
        ) as consumer,
        suppress(KeyboardInterrupt),
    ):
        consumer.subscribe([options.topic])
        while count < options.max_records:
            try:
                records = consumer.poll(timeout=1.0)
            except DeserializationError as error:
                print(f"skipped {error.topic}-{error.partition} @{error.offset}: {error.raw!r}")
                consumer.seek(TopicPartition(error.topic, error.partition), error.offset + 1)
                count += 1
                continue
            for record in records:
                print(f"{record.value.name} lives in {record.value.country}")
                count += 1


if __name__ == "__main__":
    main()
