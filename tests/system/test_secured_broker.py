"""The embedded broker with TLS, logins and ACLs, used by clients of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millstream import EmbeddedBroker
from tests.system.secured import (
    AUTHORIZER,
    Certificates,
    librdkafka,
    make_certificates,
    secured_broker,
)

SECONDS = 30


class RefusedError(Exception):
    """What the client's error says."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[EmbeddedBroker]:
    """SASL_SSL with ACLs; admin is a super user."""
    with secured_broker(
        certificates,
        "SASL_SSL://127.0.0.1:0",
        authorizer_class_name=AUTHORIZER,
        super_users="User:admin",
        connections_max_reauth_ms=60_000,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker, certificates: Certificates) -> AdminClient:
    return AdminClient(librdkafka(broker, certificates))


def create_topic(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS)


def allow(admin: AdminClient, kind: Any, name: str, user: str, operation: Any) -> None:
    binding = AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([binding])[binding].result(SECONDS)


def add_user(admin: AdminClient, user: str, mechanism: Any = ScramMechanism.SCRAM_SHA_256) -> None:
    change = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(mechanism, 4096), f"{user}-secret".encode()
    )
    admin.alter_user_scram_credentials([change])[user].result(SECONDS)


def produce(settings: dict[str, Any], topic: str, value: bytes) -> None:
    problems: list[Any] = []
    producer = Producer({**settings, "message.timeout.ms": SECONDS * 1000})
    producer.produce(topic, value, on_delivery=lambda error, _: problems.append(error and str(error)))
    producer.flush(SECONDS)
    if problems != [None]:
        raise RefusedError(str(problems))


def consume(settings: dict[str, Any], topic: str, group: str, count: int = 1) -> list[Any]:
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        values = []
        for message in consumer.consume(count, SECONDS):
            if message.error():
                raise RefusedError(str(message.error()))
            values.append(message.value())
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_new_scram_user_may_do_what_its_acls_allow(
    broker: EmbeddedBroker, certificates: Certificates, admin: AdminClient, mechanism: str
) -> None:
    user, topic = f"carl-{mechanism[-3:]}", f"orders-{mechanism[-3:]}"
    create_topic(admin, topic)
    add_user(admin, user, getattr(ScramMechanism, mechanism.replace("-", "_")))
    settings = librdkafka(broker, certificates, user, mechanism)
    with pytest.raises(RefusedError, match="TOPIC_AUTHORIZATION_FAILED"):
        produce(settings, topic, b"no")
    allow(admin, ResourceType.TOPIC, topic, user, AclOperation.WRITE)
    produce(settings, topic, b"yes")
    with pytest.raises(RefusedError, match="_AUTHORIZATION_FAILED"):
        consume(settings, topic, "readers")
    allow(admin, ResourceType.TOPIC, topic, user, AclOperation.READ)
    allow(admin, ResourceType.GROUP, "readers", user, AclOperation.READ)
    assert consume(settings, topic, "readers") == [b"yes"]


def test_acls_are_listed_and_deleted_by_filters(admin: AdminClient) -> None:
    for operation in (AclOperation.READ, AclOperation.WRITE):
        allow(admin, ResourceType.TOPIC, "listed", "dora", operation)
    everything: Any = AclBindingFilter(
        ResourceType.TOPIC,
        "listed",
        ResourcePatternType.MATCH,
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    found = admin.describe_acls(everything).result(SECONDS)
    assert {(acl.principal, acl.operation) for acl in found} == {
        ("User:dora", AclOperation.READ),
        ("User:dora", AclOperation.WRITE),
    }
    deleted = admin.delete_acls([everything])[everything].result(SECONDS)
    assert len(deleted) == 2
    assert admin.describe_acls(everything).result(SECONDS) == []


def test_topics_that_may_not_be_described_are_hidden(
    broker: EmbeddedBroker, certificates: Certificates, admin: AdminClient
) -> None:
    create_topic(admin, "hidden")
    create_topic(admin, "shown")
    allow(admin, ResourceType.TOPIC, "shown", "ann", AclOperation.DESCRIBE)
    seen = AdminClient(librdkafka(broker, certificates, "ann")).list_topics(timeout=SECONDS).topics
    assert "shown" in seen and "hidden" not in seen
