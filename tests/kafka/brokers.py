"""The two brokers that a test can run on: ours, and Apache Kafka.

A test that asks for ``bootstrap_servers`` runs on both when ``parametrize`` says so (see tests/system), and
on the embedded one otherwise. With MILLSTREAM_TEST_SERVERS=host:port it runs there, and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from millstream import EmbeddedBroker
from tests.kafka.not_run import not_run
from tests.kafka.secured import Certificates
from tests.kafka.server import NAME, KafkaUnavailableError, Run, what_is_missing

EMBEDDED: Final = "embedded"
APACHE_KAFKA: Final = "kafka"


def given_servers() -> str:
    return os.environ.get("MILLSTREAM_TEST_SERVERS", "")


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Have a test run on both brokers."""
    if not given_servers():
        metafunc.parametrize("bootstrap_servers", [EMBEDDED, APACHE_KAFKA], indirect=True, scope="session")


def servers_of(request: pytest.FixtureRequest) -> str:
    """The address of the broker that a test was parametrized with."""
    if given_servers():
        return given_servers()
    if getattr(request, "param", EMBEDDED) == APACHE_KAFKA:
        return apache_kafka_address()
    address: str = request.getfixturevalue("millstream_broker").bootstrap_servers
    return address


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
