"""The writer on a broker with TLS, a login and ACLs: settings reach tasks, and no plan shows a secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from millstream import Admin, EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 20


def test_the_writer_logs_in_and_shows_no_secret(
    spark: SparkSession, millstream_secure_broker: EmbeddedBroker
) -> None:
    settings = millstream_secure_broker.client_settings
    secret = settings["sasl.password"]
    options = {f"kafka.{name}": value for name, value in settings.items()}
    with Admin(settings) as admin:
        admin.create_topic("written", partitions=2, exist_ok=True)
        frame = spark.range(ROWS).selectExpr("cast(id as string) value")
        frame.write.format("millstream").options(**options).option("topic", "written").save()
        rows = spark.read.format("millstream").options(**options).option("subscribe", "written").load()
        assert sorted(int(row.value) for row in rows.select("value").collect()) == list(range(ROWS))
        store = spark._jsparkSession.sharedState().statusStore()
        plans = [store.execution(each.executionId()).get() for each in _all(store.executionsList())]
        shown = "\n".join(f"{plan.physicalPlanDescription()} {plan.description()}" for plan in plans)
        assert "AppendData" in shown, "the write is among the plans"
        assert secret not in shown
        wrong = {**options, "kafka.sasl.password": "wrong-word"}
        with pytest.raises(PySparkException) as raised:
            frame.write.format("millstream").options(**wrong).option("topic", "written").save()
    assert "wrong-word" not in str(raised.value)
    assert "uthentication" in str(raised.value)


def _all(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.size())]
