"""Rules and users by our own clients, on a broker that made itself secure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import Admin, Consumer, EmbeddedBroker, Producer
from millstream.admin import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    QuotaEntity,
    ResourceType,
)
from millstream.errors import BrokerError, MillstreamError, MisuseError
from tests.system.cli_process import Cli
from tests.system.secured import AUTHORIZER
from tests.waiting import SECONDS

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=True) as started:
        yield started


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(broker.client_settings) as client:
        yield client


def login(broker: EmbeddedBroker, user: str, password: str) -> dict[str, Any]:
    return {**broker.client_settings, "sasl.username": user, "sasl.password": password}


def test_a_user_writes_and_reads_what_its_rules_allow(broker: EmbeddedBroker, admin: Admin) -> None:
    admin.create_topic("orders")
    admin.set_password("ann", "first")
    admin.create_acls(
        [
            Acl(TOPIC, "ord", "User:ann", Operation.WRITE, pattern=PatternType.PREFIXED),
            Acl(TOPIC, "orders", "User:ann", Operation.READ),
            Acl(GROUP, "readers", "User:ann", Operation.READ),
        ]
    )
    settings = login(broker, "ann", "first")
    with Producer(settings) as producer:
        producer.send("orders", b"hello").result(SECONDS)
    with Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        assert [record.value for record in consumer.poll(timeout=SECONDS)] == [b"hello"]
        consumer.commit()
    with Admin(settings) as hers:
        assert hers.list_topics() == ["orders"]
        with pytest.raises(BrokerError, match="may not use the topic"):
            hers.create_topic("others")


def test_quotas_need_rules_and_hold_for_users(broker: EmbeddedBroker, admin: Admin) -> None:
    admin.set_password("quinn", "secret")
    mine = QuotaEntity(user="quinn")
    cluster = ResourceType.CLUSTER
    with Admin(login(broker, "quinn", "secret")) as hers:
        with pytest.raises(BrokerError, match="may not do this to the cluster"):
            hers.describe_client_quotas()
        admin.create_acls(Acl(cluster, "kafka-cluster", "User:quinn", Operation.DESCRIBE_CONFIGS))
        assert mine not in hers.describe_client_quotas()
        with pytest.raises(BrokerError, match="may not do this to the cluster"):
            hers.alter_client_quotas(mine, {"request_percentage": 50})
        admin.create_acls(Acl(cluster, "kafka-cluster", "User:quinn", Operation.ALTER_CONFIGS))
        hers.alter_client_quotas(mine, {"request_percentage": 0.0001})
        assert hers.describe_client_quotas()[mine] == {"request_percentage": 0.0001}
        assert hers.metrics()["throttle_ms"] > 0
    assert admin.metrics()["throttle_ms"] == 0
    admin.alter_client_quotas(mine, {"request_percentage": None})


def test_rules_are_found_and_deleted(admin: Admin) -> None:
    rules = [
        Acl(TOPIC, "found", "User:bob", Operation.READ),
        Acl(TOPIC, "*", "User:bob", Operation.DESCRIBE, Permission.DENY, host="10.0.0.1"),
    ]
    admin.create_acls(rules)
    wanted = AclFilter(TOPIC, "found", PatternType.MATCH, "User:bob")
    assert admin.describe_acls(wanted) == sorted(rules)
    assert admin.delete_acls(wanted) == sorted(rules)
    assert admin.describe_acls(wanted) == []


def test_a_changed_password_and_a_deleted_user(broker: EmbeddedBroker, admin: Admin) -> None:
    admin.set_password("cleo", "first")
    admin.set_password("cleo", "second")
    assert admin.list_users()["cleo"] == {"SCRAM-SHA-512": 8192}
    with Admin(login(broker, "cleo", "second")) as hers:
        assert hers.list_topics() == []
    with Admin(login(broker, "cleo", "first")) as old, pytest.raises(MillstreamError):
        old.list_topics(timeout=SECONDS)
    admin.set_password("cleo", None)
    assert "cleo" not in admin.list_users()
    with pytest.raises(BrokerError, match="cleo"):
        admin.set_password("cleo", None)
    with pytest.raises(MisuseError, match="SCRAM-SHA-256"):
        admin.set_password("cleo", "x", "SCRAM-SHA-1")


def test_users_and_rules_survive_a_restart(tmp_path: Path) -> None:
    rule = Acl(TOPIC, "kept", "User:ann", Operation.READ)
    with EmbeddedBroker(tmp_path, security=True) as broker:
        with Admin(broker.client_settings) as admin:
            admin.set_password("ann", "secret")
            admin.create_acls(rule)
        broker.kill()
        broker.start()
        with Admin(broker.client_settings) as admin:
            assert admin.describe_acls() == [rule]
            assert set(admin.list_users()) == {"admin", "ann"}


def test_the_commands_log_in_by_the_brokers_own_file(broker: EmbeddedBroker) -> None:
    properties = str(broker.data / "security" / "client.properties")
    cli = Cli(broker.bootstrap_servers)
    assert "admin" in cli.ok("user", "list", "--json", "--command-config", properties).json


def test_the_commands(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with EmbeddedBroker(tmp_path, settings=settings) as broker:
        cli = Cli(broker.bootstrap_servers)
        cli.ok("user", "set-password", "ann", stdin="secret\n")
        assert cli.ok("user", "list", "--json").json == {"ann": {"SCRAM-SHA-512": 8192}}
        cli.ok("acl", "add", "--user", "ann", "--operation", "read", "--topic", "t", "--group", "g")
        listed = cli.ok("acl", "list", "--topic", "t", "--json").json
        assert [(row["principal"], row["operation"], row["name"]) for row in listed] == [
            ("User:ann", "read", "t")
        ]
        deleted = cli.ok("acl", "delete", "--user", "ann", "--json").json
        assert {row["resource"] for row in deleted} == {"topic", "group"}
        assert cli.ok("acl", "list", "--json").json == []
        assert "did you mean read?" in cli.fails(
            "acl", "add", "--user", "a", "--operation", "reed", "--topic", "t", code=2
        )
        cli.ok("user", "delete", "ann")
        assert cli.ok("user", "list", "--json").json == {}
