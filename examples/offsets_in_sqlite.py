"""Exactly once: results and offsets in one transaction of a SQLite database.

The group only assigns the partitions. The database says where to continue, and cannot disagree with the
results: both are stored, or neither is. Kill it at any moment and start it again: no customer is missing or
counted twice.
"""

import argparse
import sqlite3
import sys
from collections import Counter
from contextlib import closing, suppress

from millstream import Consumer, RebalanceListener, Record, Records, TopicPartition

TABLES = """
CREATE TABLE IF NOT EXISTS countries (country TEXT PRIMARY KEY, customers INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS progress (
    topic TEXT, "partition" INTEGER, next_offset INTEGER NOT NULL, PRIMARY KEY (topic, "partition"));
"""
FIND = 'SELECT next_offset FROM progress WHERE topic = ? AND "partition" = ?'
BEGIN = "INSERT INTO progress VALUES (?, ?, 0) ON CONFLICT DO NOTHING"
ADVANCE = 'UPDATE progress SET next_offset = ? WHERE topic = ? AND "partition" = ?'
COUNT = """
INSERT INTO countries VALUES (?, ?) ON CONFLICT (country) DO UPDATE
SET customers = countries.customers + excluded.customers
"""


class Results(RebalanceListener):
    """Customers per country, with the next offset of each partition."""

    def __init__(self, database: str) -> None:
        self._database = sqlite3.connect(database, timeout=60.0)
        self._database.executescript(TABLES)

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Continue at the offsets in the database, whatever the group has committed."""
        for partition in partitions:
            found = self._database.execute(FIND, partition).fetchone()
            if found is None:
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, found[0])

    def add(self, records: Records) -> int:
        """Count records and store their offsets in one transaction; returns the number of new records.

        A member that was stalled may come with records that another has stored meanwhile. Those are skipped.
        """
        new: list[Record] = []
        with self._database:  # commits at the end, or rolls back on an error
            for partition, part in sorted(records.by_partition().items()):
                self._database.execute(BEGIN, partition)  # no other process can write from here on
                [next_offset] = self._database.execute(FIND, partition).fetchone()
                new += [record for record in part if record.offset >= next_offset]
                self._database.execute(ADVANCE, (max(next_offset, part[-1].offset + 1), *partition))
            counts = Counter(record.value for record in new)
            self._database.executemany(COUNT, sorted(counts.items()))
        return len(new)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def main() -> None:
    """Count until Ctrl-C, or until ``--max-records`` were counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="offsets-in-sqlite")
    parser.add_argument("--database", default="countries.sqlite")
    parser.add_argument("--session-timeout-ms", type=int, default=45_000)
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    count = 0
    with (
        closing(Results(options.database)) as results,
        Consumer(
            bootstrap_servers=options.bootstrap_servers,
            group_id=options.group,
            key_deserializer="string",
            value_deserializer="string",
            enable_auto_commit=False,
            auto_offset_reset="none",  # raise an error if a stored offset is gone, instead of skipping
            session_timeout_ms=options.session_timeout_ms,
        ) as consumer,
        suppress(KeyboardInterrupt),
    ):
        consumer.subscribe([options.topic], listener=results)
        while count < options.max_records:
            records = consumer.poll(timeout=1.0)
            if records:
                count += results.add(records)
                print(f"counted {count} records", flush=True)


if __name__ == "__main__":
    main()
