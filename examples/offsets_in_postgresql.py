"""Exactly once: results and offsets in one transaction of a PostgreSQL database.

The group only assigns the partitions. The database says where to continue, and cannot disagree with the
results: both are stored, or neither is. Kill it at any moment and start it again: no customer is missing or
counted twice. Needs ``pip install 'millstream[postgres]'``.
"""

import argparse
import sys
from collections import Counter
from contextlib import closing, suppress

import psycopg

from millstream import Consumer, RebalanceListener, Record, Records, TopicPartition

TABLES = (
    "CREATE TABLE IF NOT EXISTS countries (country text PRIMARY KEY, customers bigint NOT NULL)",
    """
    CREATE TABLE IF NOT EXISTS progress (
        topic text, "partition" int, next_offset bigint NOT NULL, PRIMARY KEY (topic, "partition"))
    """,
)
FIND = 'SELECT next_offset FROM progress WHERE topic = %s AND "partition" = %s'
BEGIN = "INSERT INTO progress VALUES (%s, %s, 0) ON CONFLICT DO NOTHING"
ADVANCE = 'UPDATE progress SET next_offset = %s WHERE topic = %s AND "partition" = %s'
COUNT = """
INSERT INTO countries VALUES (%s, %s) ON CONFLICT (country) DO UPDATE
SET customers = countries.customers + excluded.customers
"""


class Results(RebalanceListener):
    """Customers per country, with the next offset of each partition."""

    def __init__(self, database: str) -> None:
        self._database = psycopg.connect(database, autocommit=True)
        with self._database.transaction():
            self._database.execute("SELECT pg_advisory_xact_lock(1)")  # two members may start at once
            for table in TABLES:
                self._database.execute(table)

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
        # All members lock rows in the same order, so that no two can deadlock.
        with self._database.transaction(), self._database.cursor() as cursor:
            for partition, part in sorted(records.by_partition().items()):
                cursor.execute(BEGIN, partition)
                [next_offset] = cursor.execute(FIND + " FOR UPDATE", partition).fetchone() or [0]
                new += [record for record in part if record.offset >= next_offset]
                cursor.execute(ADVANCE, (max(next_offset, part[-1].offset + 1), *partition))
            counts = Counter(record.value for record in new)
            cursor.executemany(COUNT, sorted(counts.items()))
        return len(new)

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def main() -> None:
    """Count until Ctrl-C, or until ``--max-records`` were counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="offsets-in-postgresql")
    parser.add_argument("--database", default="postgresql://localhost/postgres")
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
