"""Asynchronous commits: commit_async() returns at once, and a callback gets the result.

A failed commit is not retried: a later one may have succeeded meanwhile, and retrying the old one would move
the group back. The next commit covers it anyway.
"""

import argparse
import sys
from contextlib import suppress

from millstream import Consumer, OffsetAndMetadata, TopicPartition


def report(offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
    """Called inside a later poll(), commit() or close(), on the same thread."""
    where = ", ".join(f"{partition} at {stored.offset}" for partition, stored in sorted(offsets.items()))
    if error is None:
        print(f"committed {where}")
    else:
        print(f"could not commit {where}: {error}", file=sys.stderr)


def main() -> None:
    """Print and commit until Ctrl-C, or until ``--max-records`` were printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="commit-async")
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
            if records:
                consumer.commit_async(callback=report)


if __name__ == "__main__":
    main()
