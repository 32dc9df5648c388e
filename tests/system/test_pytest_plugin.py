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

SECURED = """
import pytest
from millstream import Admin, Consumer, Producer
from millstream.errors import AuthenticationError, TopicAuthorizationFailedError


def test_the_first_user_may_do_everything(millstream_secure_broker):
    settings = millstream_secure_broker.client_settings
    with Admin(settings) as admin:
        admin.create_topic("orders")
    with Producer(settings) as producer:
        producer.send("orders", b"1").result(60)
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign(consumer.partitions_for("orders"))
        assert [record.value for record in consumer.poll(60)] == [b"1"]


def test_another_user_may_do_nothing_yet(millstream_secure_broker):
    settings = millstream_secure_broker.client_settings
    with Admin(settings) as admin:
        assert admin.list_topics() == ["orders"], "the same broker"
        admin.set_password("ann", "ann-secret")
    ann = {**settings, "sasl.username": "ann", "sasl.password": "ann-secret"}
    with Producer(ann) as producer, pytest.raises(TopicAuthorizationFailedError):
        producer.send("orders", b"2").result(60)


def test_no_one_else_gets_in(millstream_secure_broker):
    wrong = {**millstream_secure_broker.client_settings, "sasl.password": "wrong"}
    for settings in (wrong, {"bootstrap.servers": millstream_secure_broker.bootstrap_servers}):
        with Admin(settings) as admin, pytest.raises(AuthenticationError):
            admin.list_topics()
"""


def run(suite: str, directory: Path) -> str:
    (directory / "test_suite.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-q", "."]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=200, check=False)
    return done.stdout


def test_the_fixtures(tmp_path: Path) -> None:
    printed = run(SUITE, tmp_path)
    assert "1 failed, 3 passed" in printed, printed
    assert "1 of 2 records in test_waits_in_vain-" in printed
    assert "only one" in printed


def test_the_secured_fixture(tmp_path: Path) -> None:
    printed = run(SECURED, tmp_path)
    assert "3 passed" in printed, printed
