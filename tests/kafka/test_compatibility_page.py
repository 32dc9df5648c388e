"""docs/compatibility.md says what the code and the tests say."""

from __future__ import annotations

import pytest

from tests.kafka.brokers import APACHE_KAFKA, EMBEDDED, given_servers
from tests.kafka.clients.registry import CLIENTS
from tests.kafka.compatibility import (
    PAGE,
    differences_table,
    errors_table,
    java_table,
    rows_table,
    section,
)
from tests.kafka.mission import ROWS
from tests.kafka.results import FEATURES


def test_every_client_and_every_feature_has_its_place() -> None:
    header, _, *lines = section(PAGE.read_text(), "clients").splitlines()
    assert [each.strip() for each in header.split("|")[1:-1]] == ["client", "version", *FEATURES]
    assert [line.split("|")[1].strip() for line in lines] == list(CLIENTS)
    assert all(line.count("|") == len(FEATURES) + 3 for line in lines)


def test_the_other_tables_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    hint = "run python -m tests.kafka.compatibility"
    assert section(text, "rows") == rows_table(), hint
    assert section(text, "differences") == differences_table(), hint
    assert section(text, "errors") == errors_table(), hint
    assert section(text, "java") == java_table(), hint


@pytest.mark.skipif(bool(given_servers()), reason="all tests run on the server that was given")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row {row.number}")
def test_every_row_is_shown_on_both_brokers(row: object, request: pytest.FixtureRequest) -> None:
    """As far as this run has collected the modules: a run of some files knows only those."""
    found: dict[str, set[str]] = {}
    modules = set()
    for item in request.session.items:
        module = item.nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")
        modules.add(module)
        callspec = getattr(item, "callspec", None)
        broker = callspec.params.get("bootstrap_servers") if callspec is not None else None
        found.setdefault(f"{module}::{getattr(item, 'originalname', '')}", set()).add(str(broker))
    for test in row.tests:  # type: ignore[attr-defined]
        if test.partition("::")[0] in modules and not request.config.option.keyword:
            assert found.get(test, set()) >= {EMBEDDED, APACHE_KAFKA}, test
