"""The fixtures as a stranger's test suite uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUITE = """
import pytest
from millstream import Admin, Producer


def send(broker, topic, *values):
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value)


def test_one_partition(millstream_broker, millstream_topic, millstream_records):
    send(millstream_broker, millstream_topic, b"1", b"2")
    records = millstream_records(millstream_topic, 2, value_deserializer="string")
    assert [record.value for record in records] == ["1", "2"]


@pytest.mark.millstream_topic(partitions=3, configs={"cleanup.policy": "compact"})
def test_a_topic_of_another_shape(millstream_broker, millstream_topic):
    with Admin(bootstrap_servers=millstream_broker.bootstrap_servers) as admin:
        assert len(admin.describe_topics([millstream_topic])[millstream_topic].partitions) == 3


def test_waits_in_vain(millstream_broker, millstream_topic, millstream_records):
    send(millstream_broker, millstream_topic, b"only one")
    millstream_records(millstream_topic, 2, timeout=5)


def test_topics_are_gone_after_their_tests(millstream_broker, millstream_topic):
    with Admin(bootstrap_servers=millstream_broker.bootstrap_servers) as admin:
        assert admin.list_topics() == [millstream_topic]
"""


def test_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-q", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert "1 failed, 3 passed" in done.stdout, done.stdout
    assert "1 of 2 records in test_waits_in_vain-" in done.stdout
    assert "only one" in done.stdout
