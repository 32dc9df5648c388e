"""Automatic commits: poll() commits what earlier polls returned, at most once per interval.

Nothing is lost if each poll's records are processed before the next poll (or close). After a crash, records
since the last commit are read again: here at most a second's worth.
"""

import argparse
import sys
from contextlib import suppress

from millstream import Consumer


def main() -> None:
    """Print records until Ctrl-C, or until ``--max-records`` were printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="commit-auto")
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    done = 0
    with (
        Consumer(
            bootstrap_servers=options.bootstrap_servers,
            group_id=options.group,
            key_deserializer="string",
            value_deserializer="string",
            auto_offset_reset="earliest",
            enable_auto_commit=True,  # the default
            auto_commit_interval_ms=1000,  # the default is 5000
        ) as consumer,
        suppress(KeyboardInterrupt),
    ):
        consumer.subscribe([options.topic])
        while done < options.max_records:
            for record in consumer.poll(timeout=1.0):
                print(f"{record.topic}-{record.partition} @{record.offset}: {record.key} = {record.value}")
                done += 1
    # close(), at the end of the block, has committed the rest.


if __name__ == "__main__":
    main()
