"""Which tests run on both brokers: all that reach a broker by ``bootstrap_servers`` alone."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kafka import brokers

_THE_COMMAND: Final = "about the command itself, which starts anew for each line"

EMBEDDED_ONLY: Final[dict[str, str]] = {
    "test_cli_creating::test_a_tab_as_it_is_typed": _THE_COMMAND,
    "test_cli_creating::test_names_that_are_made_alike_are_no_slips": _THE_COMMAND,
    "test_cli_creating::test_standard_output_may_be_closed": _THE_COMMAND,
    "test_cli_creating::test_what_is_refused_makes_no_topic": _THE_COMMAND,
    "test_cli_names::test_load_with_a_misspelt_command": _THE_COMMAND,
    "test_cli_names::test_a_misspelt_state": _THE_COMMAND,
    "test_examples::test_counting_with_a_load": "three starts of Spark; loads have tests of their own",
}
"""Tests, or modules of tests, that need something only the embedded broker has, or take too long for two."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" not in metafunc.fixturenames:
        return
    module = metafunc.module.__name__.rpartition(".")[2]
    if not {module, f"{module}::{metafunc.function.__name__}"} & EMBEDDED_ONLY.keys():
        brokers.parametrize(metafunc)
