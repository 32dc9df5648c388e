"""Synchronous commits: process all records of a poll, then commit() and wait until it is stored.

commit() retries retriable errors. It raises CommitFailedError if the partitions belong to another member now:
that member reads the records since the last commit again.
"""

import argparse
import sys
from contextlib import suppress

from millstream import Consumer
from millstream.errors import CommitFailedError


def main() -> None:
    """Print and commit until Ctrl-C, or until ``--max-records`` were printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="commit-sync")
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
            enable_auto_commit=False,
        ) as consumer,
        suppress(KeyboardInterrupt),
    ):
        consumer.subscribe([options.topic])
        while done < options.max_records:
            records = consumer.poll(timeout=1.0)
            for record in records:
                print(f"{record.topic}-{record.partition} @{record.offset}: {record.key} = {record.value}")
            done += len(records)
            try:
                consumer.commit()  # after the work: committing first would lose records in a crash
            except CommitFailedError as error:
                print(f"not committed: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
