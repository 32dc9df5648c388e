"""Rewind: find the offsets of a time in the past, and read everything from there again.

A position is one number per partition, and reading deletes nothing. Rewind to recompute results after a bug
fix.
"""

import argparse
import time
from datetime import timedelta

from millstream import Consumer


def main() -> None:
    """Read the records of the last minutes, up to the current end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()

    with Consumer(
        bootstrap_servers=options.bootstrap_servers, key_deserializer="string", value_deserializer="string"
    ) as consumer:
        partitions = consumer.partitions_for(options.topic)
        consumer.assign(partitions)
        since_ms = int((time.time() - timedelta(minutes=options.minutes).total_seconds()) * 1000)
        found = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        ends = consumer.end_offsets(partitions)
        for partition, place in found.items():
            consumer.seek(partition, ends[partition] if place is None else place.offset)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in consumer.poll(timeout=1.0):
                print(f"{record.topic}-{record.partition} @{record.offset}: {record.key} = {record.value}")


if __name__ == "__main__":
    main()
