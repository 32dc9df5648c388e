"""The documents' counting example: customers per country, right while it runs twice and after it did."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from millstream.admin import Admin
from millstream.producer import Producer
from millstream.spark.load import Load
from tests.conftest import NewTopic
from tests.spark.chaos.places import Place
from tests.spark.load.conftest import LOAD_SECONDS, QUICK, running, until_owned
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTRIES = ("Brazil", "Kenya", "Norway")
COUNT = "SELECT CAST(value AS STRING) AS country, count(*) AS customers FROM batch GROUP BY country"


def test_customers_per_country(
    spark: SparkSession,
    bootstrap_servers: str,
    admin: Admin,
    producer: Producer,
    new_topic: NewTopic,
    group: str,
    place: Place,
) -> None:
    """Two programs count at the same time, customers come meanwhile; one goes; it is counted again after a
    rewind. Each customer is counted once.
    """
    topic = new_topic(partitions=4)
    expected: Counter[str] = Counter()

    def write(count: int) -> None:
        for number in range(count):
            country = COUNTRIES[number % 3]
            producer.send(topic, country.encode(), partition=number % 4)
            expected[country] += 1
        producer.flush()

    def counting() -> Load:
        return Load(
            spark,
            topics=[topic],
            group_id=group,
            bootstrap_servers=bootstrap_servers,
            sink=place.sink(),
            checks=["value IS NOT NULL"],
            sql=COUNT,
            properties=QUICK,
        )

    def counted() -> Counter[str]:
        found: Counter[str] = Counter()
        for row in place.rows():
            found[row["country"]] += row["customers"]
        return found

    write(100)
    assert counting().run_once().records == 100
    assert counted() == expected
    assert counting().run_once().records == 0
    first, second = counting(), counting()
    with running(first), running(second):
        until_owned(2, first, second)
        for _ in range(3):
            write(40)
        until(lambda: counted() == expected, lambda: f"{expected}, and not {counted()}", LOAD_SECONDS)
    assert counted() == expected
    admin.reset_offsets(group, offset=7, topics=topic)
    report = counting().run_once()
    assert report.records >= 4 * (55 - 7)
    assert counted() == expected
    assert admin.describe_group(group).lag == 0
