"""Where a sink under test keeps its tables, and how they look from outside."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest

from millstream.spark.sinks.base import Sink, Tables
from tests.spark.sinks.driving import TABLES, Driver


class Site(Protocol):
    """One test's tables. Reads go past the sink under test: they show what any user of the store sees."""

    def sink(self) -> Sink:
        """A sink of its own for each driver, all over the same tables; the site closes them at the end."""

    def rows(self) -> list[dict[str, Any]]:
        """The rows, in any order; none where there is no table."""

    def rejected(self) -> list[dict[str, Any]]: ...

    # Faults in the store, each for commits of the rows while the block lasts; standing can still be read
    # afterwards. A sink that moves both tables in one transaction fails for both.

    def refusing(self) -> AbstractContextManager[None]:
        """The store fails before anything is done: a full disk, a lost connection."""

    def answer_lost(self) -> AbstractContextManager[None]:
        """The store does it, then the answer is lost: the sink sees an error."""

    def swallowing(self) -> AbstractContextManager[None]:
        """The store says that it did it, and did nothing."""


class OnASite:
    """What the parts of the suite share."""

    can_replace = True
    """Whether a rewind replaces. A sink that can only append (a topic) documents what it does instead."""
    can_evolve = True
    """Whether the store has columns that can be added, or refused."""

    keeps_types = True
    """Whether the store has a type for each that a load writes."""

    @pytest.fixture
    def site(self) -> Site:
        raise NotImplementedError

    @pytest.fixture
    def driver(self, site: Site) -> Driver:
        """A driver over tables that are ready."""
        return another(site)


def another(site: Site, tables: Tables = TABLES, group: str = "lake") -> Driver:
    """One more driver on the same tables."""
    return Driver(site.sink(), tables, group).prepared()
