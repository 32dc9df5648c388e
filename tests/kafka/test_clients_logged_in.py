"""Other programs on a broker that made itself secure: TLS and SCRAM. Python clients are in tests/system."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.peers import java
from millstream import Admin, EmbeddedBroker
from tests.kafka.clients import toolchains
from tests.kafka.clients.piped_ledger import PipedLedger
from tests.kafka.clients.processes import JAVA_OPTIONS, FranzMember, run
from tests.kafka.clients.registry import CLIENTS
from tests.kafka.not_run import not_run
from tests.system.secured import AUTHORIZER, make_certificates, secured_broker
from tests.waiting import until

COUNT = 100


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=True) as started:
        with Admin(started.client_settings) as admin:
            admin.create_topics({"franz": 2, "kcat": 1})
        yield started


@pytest.mark.timeout(960)  # it may have to be built first
def test_franz_go(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = broker.client_settings
    program = toolchains.franz()
    monkeypatch.setenv("KAFKA_CA", settings["ssl.ca.location"])
    monkeypatch.setenv("KAFKA_USER", settings["sasl.username"])
    monkeypatch.setenv("KAFKA_PASSWORD", settings["sasl.password"])
    run([*program, "-servers", broker.bootstrap_servers, "-topic", "franz", "-produce", str(COUNT)])
    ledger = PipedLedger()
    member = FranzMember("one", broker.bootstrap_servers, "readers", "franz", "range", ledger)
    member.start()
    try:
        until(lambda: len(ledger.seen) == COUNT, lambda: f"{len(ledger.seen)} of {COUNT}: {member.errors}")
    finally:
        member.stop()
    with Admin(settings) as admin:
        assert sum(each.offset for each in admin.group_offsets("readers").values()) == COUNT


def needs_kcat_with_scram() -> None:
    """Leave out a librdkafka before 2.6.1, which repeats its nonce in SCRAM: Kafka 4 refuses it too."""
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", run([*toolchains.kcat(), "-V"]))
    assert found is not None, "kcat names its librdkafka"
    if tuple(map(int, found.groups())) < (2, 6, 1):
        not_run("kcat with SCRAM", f"its {found[0]} is older than 2.6.1, whose SCRAM is the first right one")


def produce_and_consume(settings: Mapping[str, str], topic: str) -> None:
    """With kcat, given these settings."""
    options = [word for pair in settings.items() for word in ("-X", "=".join(pair))]
    base = [*toolchains.kcat(), "-q", *options, "-t", topic]
    lines = "".join(f"value {number}\n" for number in range(COUNT))
    run([*base, "-P"], lines)
    assert run([*base, "-C", "-e", "-o", "beginning"]) == lines


def test_kcat(broker: EmbeddedBroker) -> None:
    needs_kcat_with_scram()
    produce_and_consume(broker.client_settings, "kcat")


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_kcat_by_a_certificate_and_by_a_password(listener: str, tmp_path: Path) -> None:
    """What each may do is by ACLs: it is a super user, or the broker would refuse it."""
    toolchains.kcat()
    certificates = make_certificates(tmp_path)
    own = certificates.issue_client("kcat")
    identities = {
        "SSL": {"ssl.certificate.location": own, "ssl.key.location": own},
        "SASL_SSL": {"sasl.mechanisms": "PLAIN", "sasl.username": "ann", "sasl.password": "ann-secret"},
    }
    with secured_broker(
        certificates,
        f"{listener}://127.0.0.1:0",
        ssl_client_auth="required" if listener == "SSL" else "none",
        ssl_truststore_location=certificates.ca,
        ssl_principal_mapping_rules="RULE:^.*?CN=([a-z]+).*$/$1/,DEFAULT",
        authorizer_class_name=AUTHORIZER,
        super_users="User:kcat;User:ann",
    ) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": listener}
        produce_and_consume(
            {**settings, "ssl.ca.location": certificates.ca, **identities[listener]}, f"kcat-{listener}"
        )


@pytest.mark.timeout(480)  # four programs, one after the other
def test_tools_of_java(broker: EmbeddedBroker) -> None:
    """With the client.properties that the broker wrote."""
    CLIENTS["Java"].needs()
    properties = str(Path(broker.data) / "security" / "client.properties")

    def tool(name: str, *arguments: str, text: str = "") -> str:
        given = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", properties)
        return run(java(f"org.apache.kafka.tools.{name}", *given, *arguments, options=JAVA_OPTIONS), text)

    tool("TopicCommand", "--create", "--topic", "java")
    tool("ConsoleProducer", "--topic", "java", text="one\ntwo\n")
    group = ("--group", "java")
    reading = ("--topic", "java", *group, "--from-beginning", "--max-messages", "2")
    assert tool("consumer.ConsoleConsumer", *reading).split() == ["one", "two"]
    described = tool("consumer.group.ConsumerGroupCommand", "--describe", *group)
    (lag,) = (line.split()[5] for line in described.splitlines() if line.startswith("java "))
    assert lag == "0"
