"""The two brokers that a test can run on: ours, and Apache Kafka, each with and without TLS and a login.

A test that asks for ``bootstrap_servers`` runs on both when ``parametrize`` says so (see tests/system), and
on the embedded one otherwise. With ``pytest --security SASL_SSL`` it runs over TLS with a login by SCRAM;
with MILLSTREAM_TEST_SERVERS=host:port it runs there, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from millstream import EmbeddedBroker
from tests.kafka.logins import log_in
from tests.kafka.not_run import not_run
from tests.kafka.secured import SCRAM_PASSWORD, USER, Certificates
from tests.kafka.server import NAME, KafkaUnavailableError, Run, what_is_missing

EMBEDDED: Final = "embedded"
APACHE_KAFKA: Final = "kafka"
PLAINTEXT: Final = "PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
SETTINGS: Final = {"log.retention.check.interval.ms": 3_600_000}
"""Of the embedded broker: it does not look for old records while tests write records of long ago."""


def given_servers() -> str:
    return os.environ.get("MILLSTREAM_TEST_SERVERS", "")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--security",
        choices=(PLAINTEXT, SASL_SSL),
        help="run the tests that take bootstrap_servers with this security.protocol alone",
    )


def parametrize(metafunc: pytest.Metafunc, first: str = PLAINTEXT, *others: str) -> None:
    """Have a test run on both brokers, with each of these protocols."""
    if not given_servers():
        both = [(broker, protocol) for protocol in (first, *others) for broker in (EMBEDDED, APACHE_KAFKA)]
        ids = [broker if protocol == PLAINTEXT else f"{broker}-{protocol}" for broker, protocol in both]
        metafunc.parametrize("bootstrap_servers", both, indirect=True, scope="session", ids=ids)


def servers_of(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the broker that a test was parametrized with; with a login, clients log in there."""
    default = (EMBEDDED, request.config.getoption("--security") or PLAINTEXT)
    broker, protocol = getattr(request, "param", default)
    if given_servers():
        yield given_servers()
    elif protocol == SASL_SSL:
        directory: Path = request.getfixturevalue("tmp_path_factory").mktemp("logins")
        settings = apache_kafka_login() if broker == APACHE_KAFKA else secured_embedded(request)
        address = settings["bootstrap.servers"]
        with log_in(address, settings, directory):
            yield address
    elif broker == APACHE_KAFKA:
        yield apache_kafka_address()
    else:
        yield request.getfixturevalue("millstream_broker").bootstrap_servers


def secured_embedded(request: pytest.FixtureRequest) -> dict[str, str]:
    """The settings of clients for the worker's secured broker."""
    broker: EmbeddedBroker = request.getfixturevalue("millstream_secure_broker")
    return broker.client_settings


def apache_kafka_login() -> dict[str, str]:
    """The settings of clients for Apache Kafka's listener with TLS and SCRAM."""
    listeners, certificates = apache_kafka_listeners()
    return {
        "bootstrap.servers": listeners["LOGGED_IN"],
        "security.protocol": SASL_SSL,
        "ssl.ca.location": certificates.ca,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": SCRAM_PASSWORD,
    }


@contextmanager
def without_delay(name: str) -> Iterator[str]:
    """The address of one of the two; the embedded one is new, and has groups begin at once."""
    if name == APACHE_KAFKA:
        yield apache_kafka_address()
        return
    with EmbeddedBroker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.bootstrap_servers


def apache_kafka_address() -> str:
    """The address of the run's Apache Kafka; the test is left out, and named, where there is none."""
    if missing := what_is_missing():
        not_run(NAME, missing)
    try:
        return Run.current().address()
    except KafkaUnavailableError as error:
        not_run(NAME, str(error))


def apache_kafka_listeners() -> tuple[dict[str, str], Certificates]:
    """The addresses of its secured listeners by name, and their certificates: see ``tests.kafka.secured``."""
    apache_kafka_address()
    run = Run.current()
    return run.listeners(), Certificates(run.certificates)
