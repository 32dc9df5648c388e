"""The second part of the demo: Spark loads orders into a Delta table, although a driver is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream import Admin
from millstream.demo import records
from millstream.demo.feed import Feed
from millstream.demo.group import wait_until
from millstream.demo.story import Story
from millstream.demo.tables import count, query, rejected_beside
from millstream.terminal.outcome import CommandError

TOPIC: Final = "orders"
GROUP: Final = "orders-lake"
PARTITIONS: Final = 4
ORDERS: Final = 80_000
_ORDERS_PER_SECOND: Final = 8_000
_ORDERS_PER_CYCLE: Final = 16_000
_START_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True)
class LoadingProof:
    """What was produced, loaded and rejected."""

    produced: int
    loaded: int
    rejected: int
    loaded_twice: int
    wrong_countries: tuple[str, ...]
    expected_rejected: int
    lag: int

    def checks(self) -> list[tuple[bool, str]]:
        return [
            (
                self.produced == self.loaded + self.rejected == ORDERS,
                f"{self.produced:,} produced = {self.loaded:,} loaded + {self.rejected:,} rejected",
            ),
            (self.loaded_twice == 0, f"{self.loaded_twice} loaded twice"),
            (
                self.rejected == self.expected_rejected and not self.wrong_countries,
                "each country has its rows, and only broken orders were rejected",
            ),
            (self.lag == 0, f"the group's lag is {self.lag}"),
        ]


class Loading:
    """The steps: a load that is killed, one that finishes, and the result."""

    def __init__(self, story: Story, servers: str, directory: Path, table: Path) -> None:
        self._story = story
        self._servers = servers
        self._directory = directory
        self._table = table

    def feed(self) -> Feed:
        """Create the topic, and a feed of orders."""
        with self._admin() as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        return Feed(self._servers, TOPIC, records.order_records(ORDERS), _ORDERS_PER_SECOND)

    def run(self, feed: Feed) -> LoadingProof:
        self._kill_one()
        wait_until(lambda: feed.is_done, "all orders were sent")
        produced = feed.acknowledged()
        self._load_the_rest()
        proof = self._prove(produced)
        self._tell_result(proof)
        return proof

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self._servers)

    def _command(self) -> list[str]:
        """What a user would type, with small cycles, so that the load can be killed between two."""
        return [
            "load", TOPIC, "--group", GROUP, "--to", f"delta:{self._table}", "--once",
            "--schema", records.SCHEMA, "--check", records.CHECK,
            "--max-records", str(_ORDERS_PER_CYCLE),
            "--property", "session.timeout.ms=3000",
        ]  # fmt: skip

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "millstream", *self._command(), "--json"],
            # Temporary files of a killed driver are deleted with the demo.
            env={
                **os.environ,
                "MILLSTREAM_BOOTSTRAP_SERVERS": self._servers,
                "TMPDIR": str(self._directory),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _kill_one(self) -> None:
        story = self._story
        story.step("A topic into a table: a load starts, and is killed")
        story.tell(
            "Meanwhile orders were produced as JSON; one in 250 is broken. A load is a member of a consumer "
            "group whose work is done by Spark:"
        )
        story.by_hand(
            f"millstream load {TOPIC} --group {GROUP} --to delta:{self._table.name} "
            f'--schema "{records.SCHEMA}" --check "{records.CHECK}"'
        )
        started = time.monotonic()
        process = self._start()
        try:
            self._wait_for_rows(process)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        loaded = count(self._table)
        story.tell(
            f"{time.monotonic() - started:.0f} s after its start, with {loaded:,} rows in the table and "
            f"{self._lag():,} orders to go, its driver got kill -9."
        )

    def _wait_for_rows(self, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not count(self._table):
            if process.poll() is not None:
                _, errors = process.communicate()
                raise CommandError(f"the demo's load ended before it was killed: {errors.strip()}")
            if time.monotonic() > deadline:
                raise CommandError(f"the demo's load had loaded nothing after {_START_SECONDS:.0f} seconds")
            time.sleep(0.1)

    def _load_the_rest(self) -> None:
        story = self._story
        story.step("The same command again")
        process = self._start()
        out, errors = process.communicate()
        if process.returncode:
            raise CommandError(f"the demo's load failed: {errors.strip()}")
        report = json.loads(out.splitlines()[-1])
        story.tell(
            f"It continued after the last row of the table, and loaded {report['loaded']:,} rows in "
            f"{report['seconds']:.0f} s, mostly the start of Spark. Rows and progress are one transaction: "
            "nothing is missing, nothing is doubled."
        )

    def _lag(self) -> int:
        with self._admin() as admin:
            return admin.describe_group(GROUP).lag

    def _prove(self, produced: Mapping[str, int]) -> LoadingProof:
        counts = query(self._table, "SELECT country, count(*) AS n FROM rows GROUP BY country")
        loaded = {row["country"]: row["n"] for row in counts}
        once = query(self._table, "SELECT DISTINCT _partition, _offset FROM rows")
        return LoadingProof(
            produced=sum(produced.values()),
            loaded=sum(loaded.values()),
            rejected=count(rejected_beside(self._table)),
            loaded_twice=sum(loaded.values()) - len(once),
            wrong_countries=records.differing(produced, loaded),
            expected_rejected=produced.get(records.BAD, 0),
            lag=self._lag(),
        )

    def _tell_result(self, proof: LoadingProof) -> None:
        story = self._story
        story.step("The table")
        story.table(("rejected for", "rows"), self._reasons())
        story.verdicts(proof)

    def _reasons(self) -> list[tuple[str, int]]:
        """The most common reasons, without what differs from row to row, such as a position."""
        rejected = query(rejected_beside(self._table), "SELECT reason FROM rows")
        return Counter(_kind(row["reason"]) for row in rejected).most_common(5)


def _kind(reason: str) -> str:
    return reason.split(" at ", maxsplit=1)[0]
