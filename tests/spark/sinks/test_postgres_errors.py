"""What PostgreSQL's errors mean for a load: whether another try makes sense is in their class."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from millstream.spark.sinks.base import SinkError, SinkRefusedError, SinkUnavailableError
from millstream.spark.sinks.postgres.database import explained
from millstream.spark.sinks.postgres.names import PostgresAddress
from millstream.spark.sinks.postgres.sink import PostgresSink
from tests.spark.sinks.driving import TABLES, nowhere, step
from tests.spark.sinks.postgres_site import PostgresSite
from tests.spark.sinks.site import another

ADDRESS = PostgresAddress.parse("postgresql://me@db/shop", "orders")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("08006", SinkUnavailableError),  # connection_failure
        ("57P01", SinkUnavailableError),  # admin_shutdown
        ("57P02", SinkUnavailableError),  # crash_shutdown
        ("57P03", SinkUnavailableError),  # cannot_connect_now
        ("53300", SinkUnavailableError),  # too_many_connections
        ("40P01", SinkUnavailableError),  # deadlock_detected
        ("25006", SinkUnavailableError),  # read_only_sql_transaction
        ("28P01", SinkRefusedError),  # invalid_password
        ("42501", SinkRefusedError),  # insufficient_privilege
        ("3D000", SinkRefusedError),  # invalid_catalog_name
        ("53100", SinkError),  # disk_full
        ("57014", SinkError),  # query_canceled
        ("22003", SinkError),  # numeric_value_out_of_range
    ],
)
def test_by_code(code: str, kind: type[SinkError]) -> None:
    with pytest.raises(SinkError) as raised, explained(ADDRESS, "committing"):
        raise psycopg.errors.lookup(code)("said the server")
    assert type(raised.value) is kind
    assert "orders: committing: said the server" in str(raised.value)


@pytest.fixture
def site(postgres_url: str) -> Iterator[PostgresSite]:
    site = PostgresSite(postgres_url)
    yield site
    site.close()


def prepare(url: str) -> None:
    PostgresSink(url, table="orders").prepare("g", TABLES)


def test_who_is_not_let_in(postgres_url: str) -> None:
    """The library hands on the words of the server only."""
    for wrong in (
        postgres_url.replace("postgres:", "nobody:"),
        postgres_url.replace("/postgres?", "/nothing?"),
    ):
        assert wrong != postgres_url
        with pytest.raises(SinkRefusedError, match="does not exist"):
            prepare(wrong)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(SinkUnavailableError):
        prepare("postgresql://postgres@/postgres?host=/nowhere")


def test_a_privilege_is_taken_away(site: PostgresSite) -> None:
    """In the middle of a load, by somebody else."""
    loader = f"loader_{uuid.uuid4().hex[:12]}"
    owner = another(site)
    owner.load(step(0, 0, 10))
    site.run(f"CREATE ROLE {loader} LOGIN; GRANT USAGE, CREATE ON SCHEMA {site.schema} TO {loader}")
    site.run(f"GRANT ALL ON ALL TABLES IN SCHEMA {site.schema} TO {loader}")
    sink = PostgresSink(site.url.replace("postgres:", f"{loader}:"), table=f"{site.schema}.{site.table}")
    site.sinks.append(sink)
    try:
        sink.prepare(owner.group, TABLES)
        cycle = owner.plan(step(0, 10, 20))
        site.run(f"REVOKE INSERT ON {site.schema}.{site.table} FROM {loader}")
        with pytest.raises(SinkRefusedError, match="permission denied for table orders"):
            sink.commit(cycle, nowhere)
        assert owner.next_offset() == 10
    finally:
        sink.close()
        site.run(f"DROP OWNED BY {loader}; DROP ROLE {loader}")
