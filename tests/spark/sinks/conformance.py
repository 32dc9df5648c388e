"""The suite that every sink passes. Its tests are the five rules of ``millstream.spark.sinks.base``.

To put a sink through it, say where its tables are and how a user reads them (a ``Site``), and subclass::

    class TestMySink(SinkConformance):
        @pytest.fixture
        def site(self, tmp_path: Path) -> Site:
            return MySite(tmp_path)

A number in a test's docstring is that of a failure that another loader published, as a scenario.
"""

from __future__ import annotations

from tests.spark.sinks.conformance_commits import CommitRules
from tests.spark.sinks.conformance_crashes import CrashRules
from tests.spark.sinks.conformance_replacing import ReplaceRules
from tests.spark.sinks.conformance_tables import TableRules
from tests.spark.sinks.conformance_walk import RandomWalk
from tests.spark.sinks.site import Site as Site


class SinkConformance(CommitRules, CrashRules, ReplaceRules, TableRules, RandomWalk):
    """All of it. A sink that cannot do a thing at all says so in an attribute, and its docs say why."""
