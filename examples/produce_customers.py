"""Produce customers and their countries, for the other examples to read."""

import argparse
import random

from millstream import Admin, Producer
from millstream.errors import TopicAlreadyExistsError

COUNTRIES = ["Brazil", "China", "France", "India", "Japan", "Kenya", "Norway", "Portugal"]


def main() -> None:
    """Create the topic if it is missing, write to it, and print the records per partition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()

    with Admin(bootstrap_servers=options.bootstrap_servers) as admin:
        try:
            admin.create_topic(options.topic, partitions=options.partitions)
        except TopicAlreadyExistsError:
            print(f"{options.topic} is there already")

    with Producer(
        bootstrap_servers=options.bootstrap_servers,
        key_serializer="string",  # the key decides the partition: records of one customer stay in order
        value_serializer="string",
    ) as producer:
        sent = [
            producer.send(options.topic, random.choice(COUNTRIES), key=f"customer-{number}")
            for number in range(options.count)
        ]
        partitions = [future.result().partition for future in sent]  # raises the error if a send failed
    for partition in sorted(set(partitions)):
        print(f"{options.topic}-{partition}: {partitions.count(partition)} records")


if __name__ == "__main__":
    main()
