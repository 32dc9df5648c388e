"""Requests of every API under generated rules: the broker answers as Apache Kafka, item by item."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.peers import ApacheKafka, fetch_jars, free_port
from millstream.errors import ErrorCode
from millstream.security.acls import Acl
from millstream.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from millstream.wire.messages.group_offsets import OffsetCommitResponse
from millstream.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millstream.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from millstream.wire.schema import Struct
from tests.kafka.acls.grid import GROUPS, TOPICS, USERS, is_of_transactions, make_requests, make_rules
from tests.kafka.differential.names import Names
from tests.kafka.differential.values import Step, request_of
from tests.kafka.not_run import not_run
from tests.kafka.server import NAME, what_is_missing
from tests.system.raw_client import RawClient
from tests.system.secured import ADMIN, ADMIN_PASSWORD, AUTHORIZER, jaas, make_certificates, secured_broker
from tests.system.test_acl_requests import commit
from tests.system.test_security_attacks import log_in
from tests.waiting import until

SEED: Final = 15
WORLDS: Final = 10
LOGINS: Final = {ADMIN: ADMIN_PASSWORD, **{user: f"{user}-secret" for user in USERS}}
ANY: Final = 1
EVERY_RULE: dict[str, Any] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}
"""The filter that matches all rules."""
KEPT: Final = frozenset(
    {"error_code", "topic_authorized_operations", "cluster_authorized_operations", "authorized_operations"}
    | {"name", "topic", "topic_name", "group_id", "resource_name", "key", "principal", "host", "user"}
)
"""What is compared of an answer: its items, what is wrong with each, and what is allowed."""
LEFT_OUT: Final = ("brokers", "configs", "nodes", "active_producers")
"""Lists that no rule decides about. Kafka has producers that the embedded broker refuses."""
REFUSALS: Final = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


@contextmanager
def apache_kafka() -> Iterator[str]:
    """One of its own: the run's has no authorizer."""
    if missing := what_is_missing():
        not_run(NAME, missing)
    fetch_jars()
    port = free_port()
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.open.plain.sasl.jaas.config": jaas(LOGINS),
        "group.coordinator.threads": 1,
        "auto.create.topics.enable": "false",
        "log.initial.task.delay.ms": 86_400_000,  # no retention: the records are of long ago
    }
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    with ApacheKafka(settings, options, {"OPEN": (port, "SASL_PLAINTEXT")}):
        yield f"127.0.0.1:{port}"


@contextmanager
def embedded(directory: Path) -> Iterator[str]:
    with secured_broker(
        make_certificates(directory),
        "SASL_PLAINTEXT://127.0.0.1:0",
        authorizer_class_name=AUTHORIZER,
        super_users=f"User:{ADMIN}",
        sasl_jaas_config=jaas(LOGINS),
        auto_create_topics_enable="false",
        log_retention_check_interval_ms=3_600_000,
    ) as broker:
        yield broker.bootstrap_servers


class Side:
    """One broker, with a connection of each user, and the same topics and groups as the other."""

    def __init__(self, address: str) -> None:
        self.users = {user: RawClient(address) for user in LOGINS}
        for user, client in self.users.items():
            assert log_in(client, user, LOGINS[user]).error_code == 0
        self.admin = self.users[ADMIN]
        self.names = Names("~")
        for topic in TOPICS:
            self.admin.create_topic(topic)
        until(self._knows_topics, "the topics are there")
        until(self._is_ready, "the coordinator is there")

    def _knows_topics(self) -> bool:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in TOPICS])
        found = self.admin.call(asked, 12, MetadataResponse).topics
        if any(topic.error_code for topic in found):
            return False
        for topic in found:
            self.names.topic_is(topic.name or "", topic.topic_id)
        return True

    def _is_ready(self) -> bool:
        """Kafka makes the topics of its coordinators when they are looked for."""
        for group in GROUPS:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            (found,) = self.admin.call(request, 4, FindCoordinatorResponse).coordinators
            if found.error_code:
                return False
            done = self.admin.call(commit(group, *TOPICS), 9, OffsetCommitResponse)
            if any(each.error_code for topic in done.topics for each in topic.partitions):
                return False
        producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000)
        return self.admin.call(producer, 4, InitProducerIdResponse).error_code == 0

    def use(self, rules: list[Acl]) -> None:
        """Replace all rules, and wait until they are what the broker decides by."""
        everything = DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERY_RULE)])
        self.admin.call(everything, 3, DeleteAclsResponse)
        made = CreateAclsRequest(creations=[_creation(rule) for rule in rules])
        for result in self.admin.call(made, 3, CreateAclsResponse).results:
            assert result.error_code == 0, result.error_message
        until(lambda: self._rules() == len(rules), "the rules are known")

    def _rules(self) -> int:
        found = self.admin.call(DescribeAclsRequest(**EVERY_RULE), 3, DescribeAclsResponse)
        return sum(len(resource.acls) for resource in found.resources)

    def answer(self, user: str, step: Step) -> Any:
        client = self.users[user]
        request = request_of(step, self.names)
        client.send(request, step.version)
        return _compared(client.receive(type(request), step.version)[1], self.names)

    def close(self) -> None:
        for client in self.users.values():
            client.sock.close()


def _creation(rule: Acl) -> AclCreation:
    return AclCreation(
        resource_type=rule.resource_type,
        resource_name=rule.name,
        resource_pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _compared(value: Any, names: Names) -> Any:
    if isinstance(value, Struct):
        pairs = {each.name: getattr(value, each.name) for each in value.__fields__}
        topic_id = pairs.pop("topic_id", None)
        shown_id = {} if topic_id is None else {"topic_id": _shown_id(topic_id, names)}
        return shown_id | {
            name: _compared(found, names)
            for name, found in pairs.items()
            if name in KEPT or (isinstance(found, list | Struct) and name not in LEFT_OUT)
        }
    if isinstance(value, list):
        kept = [_compared(each, names) for each in value]
        shown = [each for each in kept if not (isinstance(each, dict) and _is_internal(each))]
        return sorted(shown, key=repr)
    return value


def _shown_id(topic_id: bytes, names: Names) -> str:
    """Whose id it is; nothing for one that no topic has, as Kafka makes up when it only validates."""
    alias = names.alias_of_topic(topic_id)
    return "" if alias == "$topic:?" else alias


def _is_internal(item: dict[str, Any]) -> bool:
    """Kafka's own topics, which the embedded broker does not have."""
    return any(str(item.get(key, "")).startswith("__") for key in ("name", "topic", "resource_name"))


def _refusals(answer: Any) -> int:
    if isinstance(answer, dict):
        return (answer.get("error_code") in REFUSALS) + sum(map(_refusals, answer.values()))
    return sum(map(_refusals, answer)) if isinstance(answer, list) else 0


def _refused_items(answer: Any) -> Any:
    """An answer without what is not about permissions."""
    if isinstance(answer, dict):
        found = {name: _refused_items(each) for name, each in answer.items() if name != "host"}
        code = found.get("error_code")
        return {**found, "error_code": code if code in REFUSALS else None}
    return sorted(map(_refused_items, answer), key=repr) if isinstance(answer, list) else answer


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    with apache_kafka() as theirs, embedded(tmp_path) as ours:
        made = (Side(ours), Side(theirs))
        yield made
        for side in made:
            side.close()


def test_every_answer_is_kafkas(sides: tuple[Side, Side]) -> None:
    ours, theirs = sides
    rng = random.Random(SEED)
    asked = refused = 0
    differing: list[str] = []
    for number in range(WORLDS):
        rules = make_rules(rng)
        for side in sides:
            side.use(rules)
        for user in USERS:
            for step in make_requests(rng):
                own, kafkas = ours.answer(user, step), theirs.answer(user, step)
                asked += 1
                refused += _refusals(kafkas)
                if is_of_transactions(step):
                    own, kafkas = _refused_items(own), _refused_items(kafkas)
                if own != kafkas:
                    differing.append(f"world {number} {user} {step}\n  ours    {own}\n  Kafka's {kafkas}\n")
    assert not differing, f"seed {SEED}: {len(differing)} of {asked} differ:\n" + "\n".join(differing[:20])
    assert refused > asked / 2, "refusals must be common"
