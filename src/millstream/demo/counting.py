"""The first part of the demo: a consumer group counts customers per country while it rebalances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream import Admin
from millstream.demo.feed import Feed
from millstream.demo.group import MemberGroup, wait_until
from millstream.demo.records import customer_records, differing
from millstream.demo.results import Results
from millstream.demo.story import Story

TOPIC: Final = "customerCountries"
GROUP: Final = "CountryCounter"
PARTITIONS: Final = 4
CUSTOMERS: Final = 40_000
_CUSTOMERS_PER_SECOND: Final = 5_000
_SESSION_TIMEOUT_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class CountingProof:
    """What was produced, counted and committed."""

    produced: int
    counted: int
    countries: int
    wrong_countries: tuple[str, ...]
    end_offsets: tuple[int, ...]
    counted_offsets: tuple[int, ...]
    committed_offsets: tuple[int | None, ...]
    lag: int

    def checks(self) -> list[tuple[bool, str]]:
        wrong = f"wrong: {', '.join(self.wrong_countries)}"
        right = f"each of {self.countries} countries has exactly the customers that were sent"
        offsets_match = self.end_offsets == self.counted_offsets == self.committed_offsets
        return [
            (
                self.produced == self.counted == CUSTOMERS,
                f"{self.produced:,} produced, {self.counted:,} counted",
            ),
            (not self.wrong_countries, wrong if self.wrong_countries else right),
            (self.lag == 0 and offsets_match, f"the group's lag is {self.lag}"),
        ]


class Counting:
    """The steps: a topic, a group, a member that joins, one that is killed, and the result."""

    def __init__(self, story: Story, servers: str, directory: Path) -> None:
        self._story = story
        self._servers = servers
        self._database = directory / "results.sqlite"
        self._results = Results.create(self._database, PARTITIONS)

    def run(self) -> CountingProof:
        self._create_topic()
        with self._feed() as feed, self._group() as group:
            self._start_two(group)
            self._add_third(group)
            self._kill_one(group)
            self._finish(feed, group)
            produced = feed.acknowledged()
        with self._admin() as admin:
            proof = self._prove(admin, produced)
        self._tell_result(proof)
        self._results.close()
        return proof

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self._servers)

    def _feed(self) -> Feed:
        return Feed(self._servers, TOPIC, customer_records(CUSTOMERS), _CUSTOMERS_PER_SECOND)

    def _group(self) -> MemberGroup:
        order = {
            "topic": TOPIC,
            "database": str(self._database),
            "records_per_second": _CUSTOMERS_PER_SECOND,
            "settings": {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.records": 250,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": _SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 250,
            },
        }
        return MemberGroup(PARTITIONS, order)

    def _create_topic(self) -> None:
        self._story.step(f"A topic, and a producer of {CUSTOMERS:,} customers")
        with self._admin() as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        self._story.tell(
            f"{TOPIC} has {PARTITIONS} partitions. A producer sends {_CUSTOMERS_PER_SECOND:,} records a "
            "second: the customer's name is the key, the country the value."
        )
        self._story.by_hand(f"millstream topic create {TOPIC} --partitions {PARTITIONS}")

    def _start_two(self, group: MemberGroup) -> None:
        self._story.step("Two consumers share the partitions")
        group.start("Ann", "Bob")
        group.wait_until_settled()
        self._story.tell(
            f"Ann and Bob are processes in the group {GROUP}. They count customers per country in a "
            "database, and each partition belongs to one of them:"
        )
        self._story.ownership(group.ownership())
        self._story.by_hand(f"millstream consume {TOPIC} --group {GROUP}  # twice")

    def _add_third(self, group: MemberGroup) -> None:
        self._wait_for_share(0.3)
        self._story.step("A third member joins")
        before = self._counted()
        group.start("Cleo")
        seconds = group.wait_until_settled()
        moved = ", ".join(map(str, group.ownership()["Cleo"]))
        self._story.tell(
            f"{seconds:.1f} s after its start, Cleo has partition {moved}. The others never gave up the rest "
            f"(cooperative-sticky): {self._counted() - before:,} customers were counted meanwhile."
        )
        self._story.ownership(group.ownership())
        self._story.by_hand(f"millstream group describe {GROUP}")

    def _kill_one(self, group: MemberGroup) -> None:
        self._wait_for_share(0.55)
        self._story.step("A member is killed while it works")
        group.kill("Ann")
        seconds = group.wait_until_settled()
        self._story.tell(
            "Ann gets kill -9 and cannot leave the group, so the group waits until "
            f"{_SESSION_TIMEOUT_MS / 1000:.0f} s after her last heartbeat (session.timeout.ms). "
            f"{seconds:.1f} s after the kill the others own all partitions and continue after her last "
            "transaction:"
        )
        self._story.ownership(group.ownership())

    def _finish(self, feed: Feed, group: MemberGroup) -> None:
        wait_until(lambda: feed.is_done, "all customers were sent")
        feed.acknowledged()
        with self._admin() as admin:
            ends = self._ends(admin)
        wait_until(lambda: self._results.next_offsets() == ends, "all customers were counted")
        group.stop()

    def _wait_for_share(self, share: float) -> None:
        wait_until(lambda: self._counted() >= share * CUSTOMERS, f"{share:.0%} of the customers were counted")

    def _counted(self) -> int:
        return sum(self._results.counts().values())

    @staticmethod
    def _ends(admin: Admin) -> dict[int, int]:
        found = admin.list_offsets(TOPIC, "latest")
        return {one.partition: 0 if at is None else at.offset for one, at in sorted(found.items())}

    def _prove(self, admin: Admin, produced: Mapping[str, int]) -> CountingProof:
        counted = self._results.counts()
        described = admin.describe_group(GROUP)
        committed = {one.partition: one.committed for one in described.partitions}
        return CountingProof(
            produced=sum(produced.values()),
            counted=sum(counted.values()),
            countries=len({*produced, *counted}),
            wrong_countries=differing(produced, counted),
            end_offsets=tuple(self._ends(admin).values()),
            counted_offsets=tuple(self._results.next_offsets().values()),
            committed_offsets=tuple(committed.get(partition) for partition in range(PARTITIONS)),
            lag=described.lag,
        )

    def _tell_result(self, proof: CountingProof) -> None:
        story = self._story
        story.step("Customers per country")
        counts = sorted(self._results.counts().items(), key=lambda item: (-item[1], item[0]))
        story.table(("country", "customers"), counts[:5])
        story.tell(f"and {len(counts) - 5} more countries.")
        columns = ("partition", "records", "counted", "committed")
        offsets = zip(proof.end_offsets, proof.counted_offsets, proof.committed_offsets, strict=True)
        story.table(columns, [(str(partition), *row) for partition, row in enumerate(offsets)])
        story.verdicts(proof)
