"""The broker's settings: Kafka's own, those that one broker ignores, and those it contradicts."""

from __future__ import annotations

import logging

import pytest

from millstream.broker.settings import BrokerSettings
from millstream.errors import ConfigError

COMPOSE = {
    "node.id": "7",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@kafka:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "offsets.topic.replication.factor": "1",
    "default.replication.factor": 1,
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.io.threads": "8",
    "num.network.threads": "3",
    "socket.send.buffer.bytes": "102400",
    "log.local.retention.ms": "-2",
    "remote.log.storage.system.enable": False,
    "zookeeper.connect": "zookeeper:2181",
}


def test_what_one_broker_can_ignore_is_accepted_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "millstream.broker"):
        settings = BrokerSettings.from_properties(COMPOSE)
    assert (settings.node_id, settings.group_initial_rebalance_delay_ms) == (7, 0)
    (line,) = caplog.messages
    assert "num.io.threads" in line and "zookeeper.connect" in line
    assert "node.id" not in line and "retention" not in line, "these are settings"
    assert "num.io.threads" not in settings.properties()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("offsets.topic.replication.factor", "3", "must be 1, as there is one broker"),
        ("default.replication.factor", 3, "must be 1, as there is one broker"),
        ("process.roles", "controller", "must be broker or broker,controller"),
        ("remote.log.storage.system.enable", "true", "there is no tiered storage"),
        ("log.dirs", "/var/lib/kafka", "--data"),
        ("broker.id", "1", "use node.id"),
        ("num.io.thread", "8", "is not a setting of the embedded broker"),
    ],
)
def test_what_one_broker_contradicts_is_refused(name: str, value: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=name) as raised:
        BrokerSettings.from_properties({name: value})
    assert sentence in str(raised.value)
