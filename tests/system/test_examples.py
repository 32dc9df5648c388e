"""The examples run as they stand, as processes, and print what they promise."""

from __future__ import annotations

import itertools
import json
import signal
import sqlite3
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from millstream import Admin, Producer
from tests.conftest import NewTopic
from tests.system.example_process import EXAMPLES, RunningExample, command, run
from tests.system.postgresql import postgresql
from tests.waiting import SECONDS, until

COUNT = 400
PARTITIONS = 4
COUNTRIES = ["Brazil", "Kenya", "Norway"]
STOPS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Customers:
    """A topic of customers, and what a group has committed in it."""

    servers: str
    topic: str
    group: str

    @property
    def where(self) -> tuple[str, ...]:
        return ("--bootstrap-servers", self.servers, "--topic", self.topic)

    @property
    def member(self) -> tuple[str, ...]:
        return (*self.where, "--group", self.group)

    def write(self, first: int = 0, count: int = COUNT) -> None:
        """Records in turn to all partitions."""
        with Producer(
            bootstrap_servers=self.servers, key_serializer="string", value_serializer="string"
        ) as producer:
            for number in range(first, first + count):
                country = COUNTRIES[number % len(COUNTRIES)]
                producer.send(self.topic, country, key=f"customer-{number}", partition=number % PARTITIONS)

    def committed(self) -> dict[int, int]:
        with Admin(bootstrap_servers=self.servers) as admin:
            offsets = admin.group_offsets(self.group)
            return {partition.partition: stored.offset for partition, stored in offsets.items()}

    def state(self) -> str:
        with Admin(bootstrap_servers=self.servers) as admin:
            return admin.describe_group(self.group).state


EXPECTED = dict(Counter(COUNTRIES[number % len(COUNTRIES)] for number in range(COUNT)))
ENDS = dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)


@pytest.fixture
def customers(bootstrap_servers: str) -> Iterator[Customers]:
    name = uuid.uuid4().hex
    made = Customers(bootstrap_servers, f"customers-{name}", f"group-{name}")
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topic(made.topic, partitions=PARTITIONS)
        made.write()
        yield made
        admin.delete_topics([made.topic])


def printed_records(topic: str, lines: list[str]) -> Counter[tuple[int, int]]:
    """The partition and offset of each line that shows a record."""
    found: Counter[tuple[int, int]] = Counter()
    for line in lines:
        where, at, _ = line.partition(" @")
        if at and where.startswith(topic):
            found[int(where.rpartition("-")[2]), int(line.partition(" @")[2].partition(":")[0])] += 1
    return found


ALL_ONCE = Counter({(partition, offset): 1 for partition, end in ENDS.items() for offset in range(end)})


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text()
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'"{path.stem}"' not in tested] == []


def test_the_list_of_examples_is_complete() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f"({path.name})" not in listed] == []


# --- counting


@pytest.mark.parametrize("example", ["country_counter", "arrow_counter", "async_counter"])
def test_counting_customers(customers: Customers, example: str) -> None:
    lines = run(example, *customers.member, "--max-records", COUNT)
    assert json.loads(lines[-1]) == EXPECTED
    assert customers.committed() == ENDS, "closing has committed"
    assert customers.state() == "Empty", "closing has left the group"


@pytest.mark.parametrize("example", ["country_counter", "async_counter"])
def test_ctrl_c_ends_a_counter_well(customers: Customers, example: str) -> None:
    with RunningExample(example, *customers.member) as counter:
        until(lambda: counter.lines and sum(json.loads(counter.lines[-1]).values()) == COUNT, "counts")
        assert counter.end(signal.SIGINT) == 0
        assert counter.errors == []
    assert customers.committed() == ENDS
    assert customers.state() == "Empty"


def test_producing_customers(bootstrap_servers: str) -> None:
    topic = f"customers-{uuid.uuid4().hex}"
    where = ("--bootstrap-servers", bootstrap_servers, "--topic", topic)
    lines = run("produce_customers", *where, "--count", 300)
    assert [line.partition(":")[0] for line in lines] == [f"{topic}-{number}" for number in range(4)]
    assert run("produce_customers", *where, "--count", 100)[0] == f"{topic} is there already"
    counted = run("country_counter", *where, "--group", topic, "--max-records", 400)
    assert sum(json.loads(counted[-1]).values()) == 400


@pytest.mark.timeout(600)
def test_counting_with_a_load(customers: Customers, tmp_path: Path) -> None:
    """It runs twice, and a third time after a rewind: each customer is counted once."""
    arguments = (*customers.member, "--table", tmp_path / "countries")

    def load() -> list[str]:
        program = command("customers_per_country_load", *arguments)
        done = subprocess.run(program, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stderr[-2000:]  # Java says something in any case
        return done.stdout.splitlines()

    assert load() == [f"{COUNT} new records, 0 of them rejected", json.dumps(EXPECTED, sort_keys=True)]
    customers.write(COUNT, 3)
    more = json.dumps({country: number + 1 for country, number in EXPECTED.items()}, sort_keys=True)
    assert load() == ["3 new records, 0 of them rejected", more]
    with Admin(bootstrap_servers=customers.servers) as admin:
        admin.reset_offsets(customers.group, "earliest")
    assert load() == [f"{COUNT + 3} new records, 0 of them rejected", more]


# --- committing


@pytest.mark.parametrize(
    "example", ["commit_auto", "commit_sync", "commit_async", "commit_async_then_sync", "rebalance_listener"]
)
def test_committing(customers: Customers, example: str) -> None:
    lines = run(example, *customers.member, "--max-records", COUNT)
    assert printed_records(customers.topic, lines) == ALL_ONCE
    assert customers.committed() == ENDS
    customers.write(COUNT, 10)
    more = run(example, *customers.member, "--max-records", 10)
    assert printed_records(customers.topic, more).total() == 10, "the second run goes on after the first"


def test_the_callback_of_an_asynchronous_commit(customers: Customers) -> None:
    lines = run("commit_async", *customers.member, "--max-records", COUNT)
    last = [line for line in lines if line.startswith("committed ")][-1]
    assert last == "committed " + ", ".join(f"{customers.topic}-{number} at 100" for number in range(4))


def test_committing_in_the_middle_of_a_batch(customers: Customers) -> None:
    first = run("commit_specific_offsets", *customers.member, "--every", 10, "--max-records", 37)
    seen = printed_records(customers.topic, first)
    assert seen.total() == 37
    stored = {partition: offset for partition, offset in customers.committed().items() if offset}
    assert stored == {partition: max(n for p, n in seen if p == partition) + 1 for partition, _ in seen}
    rest = run("commit_specific_offsets", *customers.member, "--max-records", COUNT - 37)
    assert seen + printed_records(customers.topic, rest) == ALL_ONCE


# --- groups


def test_the_listener_hands_over_without_repeats(customers: Customers) -> None:
    with RunningExample("rebalance_listener", *customers.member) as first:
        until(lambda: printed_records(customers.topic, first.lines) == ALL_ONCE, "the first reads all")
        with RunningExample("rebalance_listener", *customers.member) as second:
            share = second.wait_for(f"assigned {customers.topic}").split()[1:]
            assert len(share) == 2
            assert first.wait_for("revoked").split()[1:] == share, "only what has to move is revoked"
            customers.write(COUNT, 100)
            expected = COUNT + 100
            until(
                lambda: printed_records(customers.topic, first.lines + second.lines).total() >= expected,
                "all",
            )
            assert second.end(signal.SIGINT) == 0
            first.wait_for("assigned " + " ".join(share))
        customers.write(COUNT + 100, 100)

        def read() -> Counter[tuple[int, int]]:
            return printed_records(customers.topic, first.lines + second.lines)

        until(lambda: read().total() >= COUNT + 200, "the rest")
        assert first.end(signal.SIGINT) == 0
        assert set(read().values()) == {1}, "no record came twice"
        assert first.errors + second.errors == []


@pytest.mark.parametrize("stop", STOPS)
def test_a_clean_exit(customers: Customers, stop: signal.Signals) -> None:
    with RunningExample("clean_exit", *customers.member) as example:
        example.wait_for(f"{COUNT} records")
        started = time.monotonic()
        assert example.end(stop) == 0
        assert time.monotonic() - started < 20, "poll would have waited for a minute"
        assert example.lines[-2:] == [
            "asked to stop",
            f"done after {COUNT} records; the group has been left",
        ]
        assert example.errors == []
    assert customers.state() == "Empty"
    assert customers.committed() == ENDS


def test_one_consumer_per_thread(customers: Customers) -> None:
    numbers = itertools.count(COUNT, PARTITIONS)
    with RunningExample("one_consumer_per_thread", *customers.member, "--threads", 2) as example:

        def both_have_read() -> int | None:
            """How many are written: more and more, as one may be there so early that it has them all."""
            if (written := next(numbers)) > COUNT:
                customers.write(written - PARTITIONS, PARTITIONS)
            until(lambda: sum(_counted(example).values()) == written, f"{written} records")
            return written if len(_counted(example)) == 2 else None

        written = until(both_have_read, "both have had records")
        assert example.end(signal.SIGTERM) == 0
        assert (example.lines[-1], example.errors) == (f"done after {written} records", [])
    assert customers.state() == "Empty"
    assert customers.committed() == dict.fromkeys(range(PARTITIONS), written // PARTITIONS)


def _counted(example: RunningExample) -> dict[str, int]:
    """What each worker has printed last."""
    return {name: int(rest.split()[0]) for name, _, rest in (line.partition(": ") for line in example.lines)}


def test_a_static_member_restarts_without_a_rebalance(customers: Customers) -> None:
    ours = (*customers.member, "--session-timeout-ms", 60_000, "--instance-id")
    with RunningExample("static_member", *ours, "worker-1") as first:
        first.wait_for("assigned")
        with RunningExample("static_member", *ours, "worker-2") as second:
            settled = until(lambda: _settled(first, second), "two partitions each")
            assert first.end(signal.SIGTERM) == 0
            assert first.lines[-1] == "stopped; the group keeps my place"
            with RunningExample("static_member", *ours, "worker-1") as again:
                assert again.wait_for("assigned") == settled[0], "the same partitions, and no new generation"
                assert _last(second) == settled[1]
                assert len(second.printed("revoked")) == 0
                with RunningExample("static_member", *ours, "worker-2") as duplicate:
                    assert second.join() == 1
                    assert second.errors[-1].startswith("fenced:"), second
                    assert duplicate.wait_for("assigned") == settled[1]
                    assert duplicate.end(signal.SIGINT) == 0
                assert again.end(signal.SIGINT) == 0


def _last(example: RunningExample) -> str:
    return (example.printed("assigned") or [""])[-1]


def _settled(*examples: RunningExample) -> list[str]:
    """The last assignments, once all are of one generation with two partitions each."""
    last = [_last(example) for example in examples]
    generations = {line.rpartition(" ")[2] for line in last}
    return last if len(generations) == 1 and all(line.count("customers-") == 2 for line in last) else []


def test_a_custom_assignor(customers: Customers) -> None:
    with (
        RunningExample("custom_assignor", *customers.member, "--weight", 3) as heavy,
        RunningExample("custom_assignor", *customers.member, "--weight", 1) as light,
    ):
        until(lambda: (len(_last(heavy).split()), len(_last(light).split())) == (4, 2), "3 to 1")
        assert light.end(signal.SIGTERM) == 0
        until(lambda: len(_last(heavy).split()) == 5, "all to one")
        assert heavy.end(signal.SIGINT) == 0
        assert heavy.errors + light.errors == []


# --- values and positions


def test_a_custom_deserializer(bootstrap_servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for value in (b'{"name": "Ana", "country": "Brazil"}', b"garbage", b'{"name": "Eve"}'):
            producer.send(topic, value)
        producer.send(topic, b'{"name": "Odd", "country": "Norway"}')
    where = ("--bootstrap-servers", bootstrap_servers, "--topic", topic)
    lines = run("custom_deserializer", *where, "--group", topic, "--max-records", 4)
    assert lines == [
        "Ana lives in Brazil",
        f"skipped {topic}-0 @1: b'garbage'",
        f'skipped {topic}-0 @2: b\'{{"name": "Eve"}}\'',
        "Odd lives in Norway",
    ]


def test_standalone_and_new_partitions(customers: Customers) -> None:
    with RunningExample("standalone", *customers.where, "--look-every", 0.2) as example:
        until(lambda: printed_records(customers.topic, example.lines) == ALL_ONCE, "all records")
        with Admin(bootstrap_servers=customers.servers) as admin:
            admin.create_partitions(customers.topic, PARTITIONS + 1)
        with Producer(bootstrap_servers=customers.servers) as producer:
            producer.send(customers.topic, b"Kenya", key=b"late", partition=PARTITIONS).result(SECONDS)
        example.wait_for(f"{customers.topic}-{PARTITIONS} @0: late = Kenya")
        assert set(printed_records(customers.topic, example.lines).values()) == {1}
        assert example.end(signal.SIGINT) == 0
        assert example.errors == []


def test_replaying_by_time(bootstrap_servers: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    now_ms = int(time.time() * 1000)
    with Producer(
        bootstrap_servers=bootstrap_servers, key_serializer="string", value_serializer="string"
    ) as producer:
        for number, age_minutes in enumerate((300, 200, 90, 30, 5)):
            timestamp = now_ms - age_minutes * 60_000
            producer.send(topic, "x", key=str(number), timestamp=timestamp)
    where = ("--bootstrap-servers", bootstrap_servers, "--topic", topic)
    assert len(run("replay_by_time", *where)) == 2
    assert run("replay_by_time", *where, "--minutes", 250)[0] == f"{topic}-0 @1: 1 = x"
    assert run("replay_by_time", *where, "--minutes", 1) == []


# --- offsets in a database; with crashes: test_exactly_once.py


def test_offsets_in_sqlite(customers: Customers, tmp_path: Path) -> None:
    database = tmp_path / "countries.sqlite"
    run("offsets_in_sqlite", *customers.member, "--database", database, "--max-records", COUNT)
    customers.write(COUNT, 2)
    run("offsets_in_sqlite", *customers.member, "--database", database, "--max-records", 2)
    connection = sqlite3.connect(database)
    found = dict(connection.execute("SELECT country, customers FROM countries"))
    progress = dict(connection.execute('SELECT "partition", next_offset FROM progress'))
    connection.close()
    _check_stored(found, progress)
    assert customers.committed() == {}, "the group was not asked to remember anything"


def test_offsets_in_postgresql(customers: Customers) -> None:
    with postgresql() as uri:
        member = ("offsets_in_postgresql", *customers.member, "--database", uri)
        run(*member, "--max-records", COUNT)
        customers.write(COUNT, 2)
        run(*member, "--max-records", 2)
        with psycopg.connect(uri) as connection:
            found: dict[str, int] = dict(
                connection.execute("SELECT country, customers FROM countries").fetchall()
            )
            progress: dict[int, int] = dict(
                connection.execute('SELECT "partition", next_offset FROM progress').fetchall()
            )
    _check_stored(found, progress)
    assert customers.committed() == {}, "the group was not asked to remember anything"


def _check_stored(found: dict[str, int], progress: dict[int, int]) -> None:
    assert Counter(found) == Counter(EXPECTED) + Counter({COUNTRIES[1]: 1, COUNTRIES[2]: 1})
    assert progress == ENDS | {0: ENDS[0] + 1, 1: ENDS[1] + 1}
