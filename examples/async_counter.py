"""The country counter with asyncio: the same methods as coroutines, and ``async for``."""

import argparse
import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress

from millstream import AsyncConsumer


async def count(options: argparse.Namespace) -> None:
    """Count until ``--max-records`` were counted, or until the task is cancelled."""
    customers_by_country: Counter[str] = Counter()
    async with AsyncConsumer(
        bootstrap_servers=options.bootstrap_servers,
        group_id=options.group,
        key_deserializer="string",
        value_deserializer="string",
        auto_offset_reset="earliest",
    ) as consumer:
        await consumer.subscribe([options.topic])
        async for record in consumer:
            customers_by_country[record.value] += 1
            if customers_by_country.total() % 100 == 0:
                print(json.dumps(customers_by_country, sort_keys=True), flush=True)
            if customers_by_country.total() >= options.max_records:
                break
    print(json.dumps(customers_by_country, sort_keys=True))


def main() -> None:
    """Run the event loop until Ctrl-C, or until the counter is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="AsyncCountryCounter")
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    with suppress(KeyboardInterrupt):
        asyncio.run(count(options))


if __name__ == "__main__":
    main()
