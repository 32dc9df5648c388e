"""The country counter with columns: poll_arrow() returns all fetched records as one Arrow record batch."""

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
    parser.add_argument("--group", default="ArrowCountryCounter")
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    customers_by_country: Counter[str] = Counter()
    with (
        Consumer(
            bootstrap_servers=options.bootstrap_servers,
            group_id=options.group,
            value_deserializer="string",  # a column of strings; keys stay binary
            auto_offset_reset="earliest",
        ) as consumer,
        suppress(KeyboardInterrupt),
    ):
        consumer.subscribe([options.topic])
        while customers_by_country.total() < options.max_records:
            batch = consumer.poll_arrow(timeout=1.0)
            for country in batch.column("value").value_counts().to_pylist():
                customers_by_country[country["values"]] += country["counts"]
            if batch.num_rows:
                print(json.dumps(customers_by_country, sort_keys=True), flush=True)


if __name__ == "__main__":
    main()
