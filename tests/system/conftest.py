"""Which tests run on both brokers: all that reach a broker by ``bootstrap_servers`` alone."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kafka import brokers

EMBEDDED_ONLY: Final[dict[str, str]] = {
    "test_examples::test_counting_with_a_load": "three starts of Spark; loads have tests of their own",
}
"""Tests, or modules of tests, that need something only the embedded broker has, or take too long for two."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" not in metafunc.fixturenames:
        return
    module = metafunc.module.__name__.rpartition(".")[2]
    if not {module, f"{module}::{metafunc.function.__name__}"} & EMBEDDED_ONLY.keys():
        brokers.parametrize(metafunc)
