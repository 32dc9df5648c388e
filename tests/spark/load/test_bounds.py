"""How large cycles are: bytes are those of the records as the brokers keep them."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import Producer
from millstream.spark import TopicSink
from tests.conftest import NewTopic
from tests.kafka import brokers
from tests.spark.load.conftest import NewLoad, offsets
from tests.spark.load.sqlite_sink import SqliteSink

RECORDS = 400


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" in metafunc.fixturenames:
        brokers.parametrize(metafunc)


@pytest.fixture
def topic(new_topic: NewTopic, producer: Producer) -> str:
    """Records of about a kilobyte each, in two partitions."""
    name = new_topic(partitions=2)
    for number in range(RECORDS):
        producer.send(name, b"x" * 1000, partition=number % 2)
    producer.flush()
    return name


@pytest.mark.parametrize(("bound", "cycles"), [(100_000, (4, 6)), (1_000_000, (1, 1))])
def test_bytes_bound_a_cycle_from_the_first_one_on(
    topic: str, new_load: NewLoad, sink: SqliteSink, bound: int, cycles: tuple[int, int]
) -> None:
    report = new_load(topic, max_bytes=bound).run_once()
    assert cycles[0] <= report.cycles <= cycles[1]
    sizes = [sum(one.rows for one in cycle.written) for cycle in sink.commits if cycle.written]
    assert max(sizes) <= bound / 1000
    assert sink.positions() == offsets(topic, 0, 0, RECORDS // 2) + offsets(topic, 1, 0, RECORDS // 2)


def test_a_sink_that_takes_little_at_a_time_gets_little(
    topic: str,
    new_load: NewLoad,
    bootstrap_servers: str,
    new_topic: NewTopic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TopicSink, "cycle_records", 150)
    for settings, cycles in (({}, 3), ({"max_records": RECORDS}, 1)):
        out = new_topic(name="out")
        sink: Any = TopicSink(out, bootstrap_servers=bootstrap_servers)
        try:
            load = new_load(topic, sink=sink, group_id=f"{topic}-{out}", **settings)
            assert load.run_once().cycles == cycles
        finally:
            sink.close()
