"""Count customers per country: the smallest useful consumer.

Start it twice: the two share the topic's partitions, and each counts its own part.
"""

import argparse
import json
import sys
from collections import Counter
from contextlib import suppress

from millstream import Consumer


def main() -> None:
    """Count until Ctrl-C, or until ``--max-records`` were counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="CountryCounter")
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    customers_by_country: Counter[str] = Counter()
    with (
        Consumer(
            bootstrap_servers=options.bootstrap_servers,
            group_id=options.group,
            key_deserializer="string",
            value_deserializer="string",
            auto_offset_reset="earliest",  # a new group starts with the oldest record
        ) as consumer,
        suppress(KeyboardInterrupt),
    ):
        consumer.subscribe([options.topic])
        while customers_by_country.total() < options.max_records:
            records = consumer.poll(timeout=1.0)
            for record in records:  # record.key is the customer, record.value the country
                customers_by_country[record.value] += 1
            if records:
                print(json.dumps(customers_by_country, sort_keys=True), flush=True)
    # The end of the block has closed the consumer: its offsets are committed, and other members take over its
    # partitions at once instead of after the session timeout.


if __name__ == "__main__":
    main()
