"""Limits on connections, and what the settings say about them."""

from __future__ import annotations

import pytest

from millstream.broker.connections.limits import ConnectionLimits, CreationRates, read_overrides
from millstream.broker.settings import BrokerSettings
from millstream.errors import ConfigError


def test_each_limit_refuses_and_a_closed_connection_makes_room() -> None:
    limits = ConnectionLimits(4, 2, {"10.0.0.9": 3, "10.0.0.8": 0})
    assert limits.admit("10.0.0.1", "A", 10) == limits.admit("10.0.0.1", "A", 10) == ""
    assert "max.connections.per.ip" in limits.admit("10.0.0.1", "B", 10)
    assert "has 0 connections" in limits.admit("10.0.0.8", "B", 10)
    assert "listener A" in limits.admit("10.0.0.2", "A", 2)
    assert limits.admit("10.0.0.9", "B", 10) == limits.admit("10.0.0.9", "B", 10) == ""
    assert "there are 4" in limits.admit("10.0.0.9", "B", 10)
    limits.release("10.0.0.1", "A")
    assert limits.admit("10.0.0.9", "B", 10) == ""


def test_connections_that_come_too_fast_wait() -> None:
    rates = CreationRates(20, 2, 1000)
    assert [rates.pause_ms("A", 10, 0) for _ in range(10)] == [0] * 10
    assert rates.pause_ms("A", 10, 0) == 100, "one over ten per second"
    assert [rates.pause_ms("B", 100, 0) for _ in range(9)] == [0] * 9
    assert rates.pause_ms("B", 100, 0) == 50, "one over twenty per second in all"
    for _ in range(100):
        assert rates.pause_ms("B", 100, 0) <= 1000
    assert rates.pause_ms("A", 10, 5000) == 0


def test_settings() -> None:
    settings = BrokerSettings.from_properties(
        {
            "max.connections": "100",
            "max.connections.per.ip": 10,
            "max.connections.per.ip.overrides": "127.0.0.1:50, ::1:7",
            "listener.name.outside.max.connections": "20",
        }
    )
    overrides = read_overrides(settings.max_connections_per_ip_overrides)
    assert overrides == {"127.0.0.1": 50, "0:0:0:0:0:0:0:1": 7}
    assert settings.of_listener("OUTSIDE").max_connections == 20
    assert settings.of_listener("INSIDE").max_connections == 100


@pytest.mark.parametrize("wrong", ["127.0.0.1", "127.0.0.1:many", "somewhere.invalid:5", "10.0.0.1:-1"])
def test_wrong_overrides_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        BrokerSettings.from_properties({"max.connections.per.ip.overrides": wrong})
