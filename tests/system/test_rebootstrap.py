"""Brokers that move to other addresses: clients find them again through bootstrap_servers (KIP-899)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from millstream import Admin, Consumer, EmbeddedBroker, Producer
from millstream.errors import MillstreamError
from tests.system.members import read
from tests.system.proxy import Proxy


def port_of(broker: EmbeddedBroker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def test_clients_follow_a_broker_to_another_port(tmp_path: Path) -> None:
    """The bootstrap address is a proxy, as a load balancer is; the broker names its own port."""
    with Proxy() as proxy:
        common = {"bootstrap_servers": f"localhost:{proxy.port}", "reconnect_backoff_max_ms": 100}
        with EmbeddedBroker(tmp_path) as broker:
            first = port_of(broker)
            proxy.target = first
            with Admin(common) as admin:
                admin.create_topic("t", partitions=1)
            producer = Producer(common, linger_ms=0)
            consumer = Consumer(common, group_id="g", auto_offset_reset="earliest")
            stays = Admin(common, metadata_recovery_strategy="none", default_api_timeout_ms=1000)
            consumer.subscribe(["t"])
            producer.send("t", b"before").result(30)
            assert [record.value for record in read(consumer, 1)] == [b"before"]
            assert stays.list_topics() == ["t"]
            proxy.cut()
        with socket.socket() as reserved, EmbeddedBroker(tmp_path) as moved:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("127.0.0.1", first))  # connections there are refused from now on
            proxy.target = port_of(moved)
            with producer, consumer, stays:
                producer.send("t", b"after").result(60)
                assert [record.value for record in read(consumer, 1)] == [b"after"]
                consumer.commit()
                with pytest.raises(MillstreamError):
                    stays.list_topics()
