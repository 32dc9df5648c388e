"""A consumer without a group: it assigns itself all partitions.

Nothing is rebalanced and nothing is committed. The program looks for new partitions itself.
"""

import argparse
import sys
import time
from contextlib import suppress

from millstream import Consumer


def main() -> None:
    """Read everything from the beginning, until Ctrl-C, or until ``--max-records`` were printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument(
        "--look-every", type=float, default=60.0, help="seconds between checks for new partitions"
    )
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    count = 0
    with (
        Consumer(
            bootstrap_servers=options.bootstrap_servers,
            key_deserializer="string",
            value_deserializer="string",
            auto_offset_reset="earliest",  # no group: no committed offsets to start from
        ) as consumer,
        suppress(KeyboardInterrupt),
    ):
        look_at = 0.0
        while count < options.max_records:
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + options.look_every
                partitions = consumer.partitions_for(options.topic)
                if set(partitions) != consumer.assignment():
                    consumer.assign(partitions)  # known partitions keep their positions
                    print("reading", *partitions, flush=True)
            for record in consumer.poll(timeout=min(1.0, options.look_every)):
                print(f"{record.topic}-{record.partition} @{record.offset}: {record.key} = {record.value}")
                count += 1


if __name__ == "__main__":
    main()
