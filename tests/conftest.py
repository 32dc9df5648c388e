"""What all tests share: the address of a broker, clients for it, and names that no other test uses."""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Iterator
from typing import Protocol

import hypothesis
import pytest

from millstream.admin import Admin
from millstream.embedded import EmbeddedBroker
from millstream.producer import Producer
from tests.kafka import brokers, logins
from tests.kafka.not_run import summarize
from tests.kafka.server import Run
from tests.longest_first import longest_first

# How long an example takes says something about the machine: a property is not wrong for it.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    brokers.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In a background job. What is ignored here would be ignored by every process that a test interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    logins.install()
    if not hasattr(config, "workerinput"):  # the process that starts the others, or the only one
        config.add_cleanup(Run.begin().end)


@pytest.hookimpl(trylast=True)  # after pytest's own order, by the parameters of shared fixtures
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several
        longest_first(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    summarize(terminalreporter)


@pytest.fixture(scope="session", autouse=True)
def no_contexts_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands under test find no contexts, whatever the one who runs the tests has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("MILLSTREAM_CONTEXT", raising=False)
        yield


class NewTopic(Protocol):
    """Makes a topic for one test, and returns its name."""

    def __call__(self, partitions: int = 1, name: str = "", **configs: object) -> str: ...


@pytest.fixture(scope="session")
def millstream_broker() -> Iterator[EmbeddedBroker]:
    """The plugin's, except that it does not look for old records while tests write records of long ago."""
    with EmbeddedBroker(settings=brokers.SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def millstream_secure_broker() -> Iterator[EmbeddedBroker]:
    """The plugin's, with the same exception."""
    with EmbeddedBroker(security=True, settings=brokers.SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the broker of this test listens: see ``tests.kafka.brokers``."""
    yield from brokers.servers_of(request)


@pytest.fixture(scope="session")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        yield admin


@pytest.fixture(scope="session")
def producer(bootstrap_servers: str) -> Iterator[Producer]:
    """A producer that sends at once what it is given."""
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
        yield producer


@pytest.fixture
def new_topic(admin: Admin, request: pytest.FixtureRequest) -> Iterator[NewTopic]:
    """Topics named after the test, deleted after it. Settings are Kafka's, with underscores for the dots."""
    made: list[str] = []

    def make(partitions: int = 1, name: str = "", **configs: object) -> str:
        topic = f"{_readable(request)}-{name or len(made)}-{uuid.uuid4().hex[:8]}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topic(topic, partitions=partitions, configs=settings)
        made.append(topic)
        return topic

    yield make
    admin.delete_topics(made, missing_ok=True)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """The name of a group that nobody else is in."""
    return f"{_readable(request)}-{uuid.uuid4().hex[:8]}"


def _readable(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return re.sub(r"[^a-zA-Z0-9._-]+", "-", name)[:100].strip("-")
