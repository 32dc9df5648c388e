"""Commit in the middle of a batch: track the offsets, and pass them to commit().

commit() without offsets would cover all records that poll() returned, also those not processed yet. The
committed offset is that of the next record to read: the last processed one plus one.
"""

import argparse
import sys
from contextlib import suppress

from millstream import Consumer, OffsetAndMetadata


def main() -> None:
    """Print and commit until Ctrl-C, or until exactly ``--max-records`` were printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="commit-specific-offsets")
    parser.add_argument("--every", type=int, default=1000, help="commit after this number of records")
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    done = 0
    next_offsets = {}
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
                for record in consumer.poll(timeout=1.0)[: options.max_records - done]:
                    print(
                        f"{record.topic}-{record.partition} @{record.offset}: {record.key} = {record.value}"
                    )
                    next_offsets[record.topic_partition] = OffsetAndMetadata(record.offset + 1, "by hand")
                    done += 1
                    if done % options.every == 0:
                        consumer.commit_async(next_offsets)
        consumer.commit(next_offsets)


if __name__ == "__main__":
    main()
