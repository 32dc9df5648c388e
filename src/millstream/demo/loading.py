"""The demo's second half: orders become a Delta table through Spark, though a driver is killed."""

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
from millstream.demo import orders
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
    """What must be equal in the end."""

    produced: int
    loaded: int
    rejected: int
    loaded_twice: int
    wrong_countries: tuple[str, ...]
    expected_rejected: int
    lag: int

    @property
    def holds(self) -> bool:
        return (
            self.produced == self.loaded + self.rejected == ORDERS
            and self.rejected == self.expected_rejected
            and self.loaded_twice == 0
            and not self.wrong_countries
            and self.lag == 0
        )


class Loading:
    """Steps of the demo: a load that is killed, one that finishes, and the result."""

    def __init__(self, story: Story, servers: str, directory: Path, table: Path) -> None:
        self._story = story
        self._servers = servers
        self._directory = directory
        self._table = table

    def feed(self) -> Feed:
        """Orders that keep coming from now on."""
        with self._admin() as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        return Feed(self._servers, TOPIC, orders.orders(ORDERS), _ORDERS_PER_SECOND)

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
        """What a user would type; the bound on a cycle only gives the demo a middle to strike in."""
        return [
            "load", TOPIC, "--group", GROUP, "--to", f"delta:{self._table}", "--once",
            "--schema", orders.SCHEMA, "--check", orders.CHECK,
            "--max-records", str(_ORDERS_PER_CYCLE),
            "--property", "session.timeout.ms=3000",
        ]  # fmt: skip

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "millstream", *self._command(), "--json"],
            # What a killed driver leaves behind goes with the demo.
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
        story.step("Topics into tables: a load begins, and is killed in the middle")
        story.tell(
            "Meanwhile orders came in as JSON, and one in 250 is broken. A load is a member of a consumer "
            "group whose work is done by Spark:"
        )
        story.by_hand(
            f"millstream load {TOPIC} --group {GROUP} --to delta:{self._table.name} "
            f'--schema "{orders.SCHEMA}" --check "{orders.CHECK}"'
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
            f"It went on where the table stood, and loaded {report['loaded']:,} rows in "
            f"{report['seconds']:.0f} s, most of which Spark took to start. Rows and progress are one "
            "transaction: nothing is missing, nothing is there twice."
        )

    def _lag(self) -> int:
        with self._admin() as admin:
            return admin.describe_group(GROUP).lag

    def _prove(self, produced: Mapping[str, int]) -> LoadingProof:
        counts = query(self._table, "SELECT country, count(*) AS n FROM rows GROUP BY country")
        loaded = {row["country"]: row["n"] for row in counts}
        once = query(self._table, "SELECT DISTINCT _partition, _offset FROM rows")
        every = {*produced, *loaded} - {orders.BAD}
        return LoadingProof(
            produced=sum(produced.values()),
            loaded=sum(loaded.values()),
            rejected=count(rejected_beside(self._table)),
            loaded_twice=sum(loaded.values()) - len(once),
            wrong_countries=tuple(sorted(one for one in every if produced.get(one) != loaded.get(one))),
            expected_rejected=produced.get(orders.BAD, 0),
            lag=self._lag(),
        )

    def _tell_result(self, proof: LoadingProof) -> None:
        story = self._story
        story.step("The table")
        story.table(("rejected for", "rows"), self._reasons())
        story.verdict(
            proof.produced == proof.loaded + proof.rejected,
            f"{proof.produced:,} produced = {proof.loaded:,} loaded + {proof.rejected:,} rejected",
        )
        story.verdict(proof.loaded_twice == 0, f"{proof.loaded_twice} loaded twice")
        story.verdict(
            proof.rejected == proof.expected_rejected and not proof.wrong_countries,
            "each row is where it belongs: by country, and only broken ones among the rejected",
        )
        story.verdict(proof.lag == 0, f"the group's lag is {proof.lag}")

    def _reasons(self) -> list[tuple[str, int]]:
        """The commonest reasons. What differs from row to row, such as a position, is left out."""
        rejected = query(rejected_beside(self._table), "SELECT reason FROM rows")
        return Counter(_kind(row["reason"]) for row in rejected).most_common(5)


def _kind(reason: str) -> str:
    return reason.split(" at ", maxsplit=1)[0]
