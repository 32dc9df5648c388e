"""The secured listeners of the run's Apache Kafka: their certificates, users and settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

PROTOCOLS: Final = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "FUTURE": "SSL",
    "OTHER": "SSL",
    "LOGIN": "SASL_SSL",
    "LOGGED_IN": "SASL_SSL",
    "OPEN": "SASL_PLAINTEXT",
    "SHORT": "SASL_SSL",
}
"""TLS; client certificates required; an expired certificate; one that is not valid yet; one for another host
name; all mechanisms over TLS, twice, as all clients of the second log in (see ``logins``); all without TLS;
and sessions of two seconds, as Kafka accepts no login within a second of the last."""

USER: Final = "alice"
PASSWORD: Final = 'al,ice="secret"'
SCRAM_USERS: Final = tuple(
    f"{mechanism}=[name={USER},iterations=4096,password=scram-secret]"
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
)
SCRAM_PASSWORD: Final = "scram-secret"
SESSION_MS: Final = 2000
_MODULES: Final = "org.apache.kafka.common.security"
_LOGINS: Final = {
    "plain": f"{_MODULES}.plain.PlainLoginModule required "
    + f'user_{USER}="{PASSWORD}";'.replace('="secret"', '=\\\\"secret\\\\"'),
    "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
    "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="b";',
}
_MECHANISMS: Final = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: the CA's certificate, and keys with their certificates."""

    directory: Path

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.pem")

    def store(self, name: str) -> str:
        """One of: server, expired, future, other, client, stranger (of another CA), revoked."""
        return str(self.directory / f"{name}.pem")


def make_certificates(directory: Path) -> Certificates:
    """Write all certificates that the tests need, also where a server that did not start has left its own."""
    directory.mkdir(exist_ok=True)
    found = Certificates(directory)
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(found.ca)
    now = datetime.now(UTC).replace(tzinfo=None)
    day = timedelta(days=1)
    issued = {
        "server": authority.issue_cert("localhost", "127.0.0.1", "::1"),
        "expired": authority.issue_cert("127.0.0.1", not_before=now - 2 * day, not_after=now - day),
        "future": authority.issue_cert("127.0.0.1", not_before=now + day, not_after=now + 2 * day),
        "other": authority.issue_cert("kafka.example.com"),
        "client": authority.issue_cert("client@example.com"),
        "stranger": other.issue_cert("client@example.com"),
    }
    for name, certificate in issued.items():
        Path(found.store(name)).write_bytes(in_one_file(certificate))
    return found


def in_one_file(certificate: trustme.LeafCert) -> bytes:
    """A key as Java reads it (PKCS#8) with its certificates."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text + b"".join(blob.bytes() for blob in certificate.cert_chain_pems)


def secured_settings(certificates: Certificates) -> dict[str, object]:
    """The settings of all secured listeners."""
    settings: dict[str, object] = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.store("server"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.ca,
        "sasl.enabled.mechanisms": _MECHANISMS,
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for listener in ("expired", "future", "other"):
        settings[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        settings[f"listener.name.{listener}.ssl.keystore.location"] = certificates.store(listener)
    for mechanism, line in _LOGINS.items():
        for listener in ("login", "logged_in", "open", "short"):
            settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = line
        settings[f"listener.name.short.{mechanism}.connections.max.reauth.ms"] = SESSION_MS
    return settings
