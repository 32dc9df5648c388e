"""A secured embedded broker for tests: its certificates, its users, and the settings of clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from millstream import EmbeddedBroker

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN_USERS = {ADMIN: ADMIN_PASSWORD, "ann": "ann-secret", "bob": "bob-secret"}


def jaas(users: dict[str, str]) -> str:
    listed = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {listed};"


@dataclass(frozen=True)
class Certificates:
    """A CA, the broker's certificate, and where they are."""

    authority: trustme.CA
    directory: Path

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def server(self) -> str:
        return str(self.directory / "server.pem")

    def issue_server(self, authority: trustme.CA | None = None) -> None:
        """Write a new certificate of the broker over the old one."""
        (authority or self.authority).issue_cert(
            "localhost", "127.0.0.1"
        ).private_key_and_cert_chain_pem.write_to_path(self.server)

    def issue_client(self, name: str, authority: trustme.CA | None = None) -> str:
        """Write a certificate with this common name; return its path."""
        path = self.directory / f"{name}.pem"
        cert = (authority or self.authority).issue_cert(common_name=name)
        cert.private_key_and_cert_chain_pem.write_to_path(path)
        return str(path)


def make_certificates(directory: Path) -> Certificates:
    made = Certificates(trustme.CA(), directory)
    made.authority.cert_pem.write_to_path(made.ca)
    made.issue_server()
    return made


@contextmanager
def secured_broker(
    certificates: Certificates, listeners: str, data: Path | None = None, **settings: object
) -> Iterator[EmbeddedBroker]:
    """A broker with the broker's certificate, and with PLAIN's users where there is a login."""
    given = {
        "listeners": listeners,
        "ssl.keystore.location": certificates.server,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config": jaas(PLAIN_USERS),
        "connection.failed.authentication.delay.ms": 0,
    }
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    with EmbeddedBroker(data, settings=given) as broker:
        yield broker


def librdkafka(
    broker: EmbeddedBroker,
    certificates: Certificates,
    user: str = ADMIN,
    mechanism: str = "PLAIN",
    **more: object,
) -> dict[str, Any]:
    """The settings of confluent-kafka for a listener with SASL_SSL."""
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": certificates.ca,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PLAIN_USERS.get(user, f"{user}-secret"),
        **more,
    }
