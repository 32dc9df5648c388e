"""docs/compatibility.md says what the code and the tests say."""

from __future__ import annotations

import re

import pytest

from tests.kafka.brokers import APACHE_KAFKA, EMBEDDED, given_servers
from tests.kafka.clients.registry import CLIENTS
from tests.kafka.compatibility import (
    HINT,
    PAGE,
    clients_on_page,
    differences_table,
    errors_table,
    java_table,
    rows_table,
    section,
)
from tests.kafka.mission import ROWS
from tests.kafka.results import FEATURES
from tests.kafka.server import ROOT

NONE = ("", "")
"""Of a test that takes no broker."""


def test_every_client_and_every_feature_has_its_place() -> None:
    """The marks are compared where clients run: each in its own test, with what it did."""
    header, *_ = section(PAGE.read_text(), "clients").splitlines()
    assert [each.strip() for each in header.split("|")[1:-1]] == ["client", "version", *FEATURES]
    rows = clients_on_page()
    assert list(rows) == list(CLIENTS)
    for _, *found in rows.values():
        assert len(found) == len(FEATURES)
        assert set(found) <= {"yes", "–"}


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "kcat"])  # which the machine brings
def test_the_versions_are_those_that_are_pinned(name: str) -> None:
    assert clients_on_page()[name][0] == _pinned(name), f"run the tests of clients; then {HINT}"


def _pinned(name: str) -> str:
    if name in ("franz-go", "kafkajs"):
        return CLIENTS[name].version()
    file, pattern = ("requirements.lock", rf"^{name}==(\S+)")
    if name == "Java":
        file, pattern = ("benchmarks/pom.xml", r"<kafka.version>(\d+\.\d+\.\d+)</kafka.version>")
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None, f"{file} does not pin {name}"
    return found[1]


def test_the_other_tables_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    assert section(text, "rows") == rows_table(), HINT
    assert section(text, "differences") == differences_table(), HINT
    assert section(text, "errors") == errors_table(), HINT
    assert section(text, "java") == java_table(), HINT


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
        broker, _ = callspec.params.get("bootstrap_servers", NONE) if callspec is not None else NONE
        found.setdefault(f"{module}::{getattr(item, 'originalname', '')}", set()).add(broker)
    for test in row.tests:  # type: ignore[attr-defined]
        if test.partition("::")[0] in modules and not request.config.option.keyword:
            assert found.get(test, set()) >= {EMBEDDED, APACHE_KAFKA}, test
