"""How a table of PostgreSQL is spelled, and what is shown of its address."""

from __future__ import annotations

import pytest

from millstream.errors import ConfigError
from millstream.spark.sinks.postgres.names import PostgresAddress, TableName, with_default_table
from millstream.spark.sinks.postgres.sink import PostgresSink


@pytest.mark.parametrize(
    ("text", "schema", "table"),
    [
        ("orders", None, "orders"),
        ("Sales.Orders", "Sales", "Orders"),
        ('"odd.name"', None, "odd.name"),
        ('"a.b"."c ""d"""', "a.b", 'c "d"'),
        ("naïve name-with 100%", None, "naïve name-with 100%"),
    ],
)
def test_spellings(text: str, schema: str | None, table: str) -> None:
    name = TableName.parse(text)
    assert (name.schema, name.table) == (schema, table)
    assert TableName.parse(str(name)) == name


@pytest.mark.parametrize("text", ["a.b.c", '"open', 'a"b', ".a", "a.", '""'])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(ConfigError, match="not the name of a table"):
        TableName.parse(text)


@pytest.mark.parametrize("name", ["x" * 55, "é" * 28, "a\0b", "millstream_progress"])
def test_names_that_cannot_be(name: str) -> None:
    """PostgreSQL would cut a long name off: NAME_rejected and NAME could become one table."""
    with pytest.raises(ConfigError):
        TableName.parse(name)
    TableName.parse("x" * 54)


def test_the_table_is_taken_out_of_the_url() -> None:
    address = PostgresAddress.parse("postgresql://u:secret@host:5433/db?sslmode=disable&table=sales.orders")
    assert address.url == "postgresql://u:secret@host:5433/db?sslmode=disable"
    assert address.table == TableName("orders", "sales")


def test_no_password_is_shown() -> None:
    sink = PostgresSink("postgresql://u:secret@host:5433/db?sslmode=disable&password=hidden", table="orders")
    assert sink.name == "postgresql://host:5433/db?table=orders"
    assert repr(sink) == "PostgresSink(postgresql://host:5433/db?table=orders)"


def test_the_name_leads_to_the_same_table() -> None:
    address = PostgresAddress.parse("postgresql://u:secret@host/db", 'sales."a.b c&d"')
    again = PostgresAddress.parse(address.name)
    assert (again.table, again.name) == (address.table, address.name)


def test_a_socket_for_a_host() -> None:
    address = PostgresAddress.parse("postgresql://u@/db?host=/run/pg&table=orders")
    assert address.name == "postgresql://%2Frun%2Fpg/db?table=orders"
    assert PostgresAddress.parse("postgresql:///db?table=orders").url == "postgresql:///db"


def test_the_default_is_the_topics_name() -> None:
    """Exactly that name: a dot in it does not make a schema."""
    url = with_default_table("postgresql://host/db?sslmode=disable", "eu.orders")
    assert PostgresAddress.parse(url).table == TableName("eu.orders")
    assert with_default_table("postgresql://host/db?table=t", "orders") == "postgresql://host/db?table=t"


@pytest.mark.parametrize(
    ("url", "table", "message"),
    [
        ("postgresql://host/db", None, r"which table\? .*postgresql://host/db\?table=NAME"),
        ("postgresql://host/db?table=a", "b", "give it once"),
        ("postgresql://host/db?table=a&table=b", None, "more than one"),
        ("postgresql://host/db?sslmod=x", "a", "sslmod"),
        ("mysql://host/db", "a", "postgresql://"),
    ],
)
def test_wrong_addresses(url: str, table: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PostgresSink(url, table)
