"""What --to means."""

from __future__ import annotations

import pytest

from millstream.errors import ConfigError
from millstream.spark.sinks.kinds import sink_for

BROKERS = {"bootstrap_servers": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("address", "topics", "name"),
    [
        ("delta:lake/orders", ["orders"], "delta:lake/orders"),
        ("postgresql://host/db", ["eu.orders"], "postgresql://host/db?table=%22eu.orders%22"),
        ("postgres://u:p@host/db?table=t", ["orders", "payments"], "postgresql://host/db?table=t"),
        ("topic:clean", ["orders"], "topic:clean"),
    ],
)
def test_addresses(address: str, topics: list[str], name: str) -> None:
    assert sink_for(address, topics, BROKERS).name == name


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "lake/orders",
            r"'lake/orders' is not a known sink: use delta:DIR, postgresql://.* or topic:NAME",
        ),
        ("mysql://u:secret@host/db", r"'mysql://host/db' is not a known sink"),
        ("dleta:x", r"'dleta:x' is not a known sink: did you mean delta:\? Use delta:DIR, "),
        ("delta:", "needs a directory"),
        ("topic:", "name of a topic"),
        ("topic:orders", "into itself"),
        ("postgresql://host/db", "which table"),
    ],
)
def test_what_is_no_address(address: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sink_for(address, ["orders", "payments"], BROKERS)
