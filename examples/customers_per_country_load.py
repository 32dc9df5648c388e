"""Count customers per country in a table: a load with SQL that is correct however often it runs.

The query counts the records of each loaded range, and the table stores these counts with their ranges. Run it
again: only new records are counted. Rewind the group (``millstream group reset``) and run it again: the new
counts replace the earlier ones. The sum is always the number of customers.
"""

import argparse
import json
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from millstream.spark import DeltaSink, Load, session

COUNT = "SELECT CAST(value AS STRING) AS country, count(*) AS customers FROM batch GROUP BY country"
SUM = "SELECT country, sum(customers) AS customers FROM counts GROUP BY country"


def main() -> None:
    """Load new records, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="CountryTable")
    parser.add_argument("--table", default="countries", help="a directory, created if missing")
    options = parser.parse_args()

    spark = session("local[*]")
    report = Load(
        spark,
        topics=[options.topic],
        group_id=options.group,
        bootstrap_servers=options.bootstrap_servers,
        sink=DeltaSink(options.table),
        checks=["value IS NOT NULL"],  # a record without a country is rejected, with this reason
        sql=COUNT,
    ).run_once()
    spark.stop()

    print(f"{report.records} new records, {report.rejected} of them rejected")
    query: Any = QueryBuilder().register("counts", DeltaTable(options.table))
    rows = pa.table(query.execute(SUM).read_all()).to_pylist()
    print(json.dumps({row["country"]: row["customers"] for row in rows}, sort_keys=True))


if __name__ == "__main__":
    main()
