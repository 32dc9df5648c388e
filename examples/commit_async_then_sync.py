"""Asynchronous commits while running, and a synchronous one at the end.

A failed commit in between does not matter, as the next one covers it. Nothing covers the last one, so the
program waits for it, and commit() retries it.
"""

import argparse
import sys
from contextlib import suppress

from millstream import Consumer


def main() -> None:
    """Print and commit until Ctrl-C, or until ``--max-records`` were printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="commit-async-then-sync")
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    done = 0
    with Consumer(
        bootstrap_servers=options.bootstrap_servers,
        group_id=options.group,
        key_deserializer="string",
        value_deserializer="string",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe([options.topic])
        with suppress(KeyboardInterrupt):
            while done < options.max_records:
                for record in consumer.poll(timeout=1.0):
                    print(
                        f"{record.topic}-{record.partition} @{record.offset}: {record.key} = {record.value}"
                    )
                    done += 1
                consumer.commit_async()
        consumer.commit()


if __name__ == "__main__":
    main()
