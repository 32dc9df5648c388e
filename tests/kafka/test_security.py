"""Our clients on a secured Apache Kafka: each mechanism lets them in, and each mistake is named."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from millstream import Admin, Consumer, Producer, TopicPartition
from millstream.errors import AuthenticationError, MillstreamError
from tests.kafka.brokers import apache_kafka_listeners
from tests.kafka.secured import PASSWORD, SCRAM_PASSWORD, USER, Certificates
from tests.waiting import SECONDS, until

Settings = dict[str, Any]

MODULES = "org.apache.kafka.common.security"
QUOTED = PASSWORD.replace('"', '\\"')


@pytest.fixture(scope="module")
def kafka() -> tuple[dict[str, str], Certificates]:
    return apache_kafka_listeners()


def settings_for(kafka: tuple[dict[str, str], Certificates], listener: str, **given: Any) -> Settings:
    listeners, certificates = kafka
    settings = {
        name if name == "oauth_cb" else name.replace("_", "."): value for name, value in given.items()
    }
    if settings.get("security.protocol", "").upper().endswith("SSL"):
        settings.setdefault("ssl.ca.location", certificates.ca)
    return {"bootstrap.servers": listeners[listener], **settings}


def login(mechanism: str, password: str, protocol: str = "SASL_SSL") -> Settings:
    return {
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_username": USER,
        "sasl_password": password,
    }


def token(_: str = "") -> tuple[str, float]:
    now = time.time()
    claims = {"sub": USER, "iat": int(now) - 1, "exp": int(now) + 3600}
    return jwt.encode(claims, "", algorithm="none"), now + 3600


def as_pkcs12(path: str, target: Path, password: str) -> str:
    text = Path(path).read_bytes()
    key: Any = load_pem_private_key(text, None)
    own, *others = x509.load_pem_x509_certificates(text[text.index(b"-----BEGIN CERT") :])
    target.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"client",
            key,
            own,
            others,
            BestAvailableEncryption(password.encode()),
        )
    )
    return str(target)


def round_trip(settings: Settings) -> None:
    """Create a topic, write to it and read it in a group: all three clients, with all their connections."""
    topic = f"secured-{uuid.uuid4().hex[:8]}"
    with Admin(settings) as admin:
        admin.create_topics({topic: 1})
        with Producer(settings) as producer:
            for number in range(10):
                producer.send(topic, str(number).encode())
        reading = {**settings, "group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer(reading) as consumer:
            consumer.subscribe([topic])
            values: list[bytes] = []

            def all_read() -> bool:
                values.extend(record.value for record in consumer.poll(timeout=1))
                return len(values) == 10

            until(all_read, "all records are read")
            consumer.commit()
        assert values == [str(number).encode() for number in range(10)]
        admin.delete_topics([topic])


PARTITION = TopicPartition("t", 0)
LOGINS: dict[str, tuple[str, Settings]] = {
    "tls": ("TLS", {"security_protocol": "SSL"}),
    "tls 1.2": ("TLS", {"security_protocol": "ssl", "ssl_enabled_protocols": "TLSv1.2"}),
    "plain": ("LOGIN", login("PLAIN", PASSWORD)),
    "plain without tls": ("OPEN", login("PLAIN", PASSWORD, "SASL_PLAINTEXT")),
    "scram 256": ("LOGIN", login("SCRAM-SHA-256", SCRAM_PASSWORD)),
    "scram 512": ("LOGIN", login("SCRAM-SHA-512", SCRAM_PASSWORD)),
    "bearer": (
        "LOGIN",
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "oauth_cb": token},
    ),
    "librdkafka's names": (
        "LOGIN",
        {
            "security_protocol": "sasl_ssl",
            "sasl_mechanisms": "PLAIN",
            "sasl_username": USER,
            "sasl_password": PASSWORD,
            "enable_ssl_certificate_verification": "true",
        },
    ),
    "a login line": (
        "LOGIN",
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_jaas_config": f'{MODULES}.plain.PlainLoginModule required username="{USER}" '
            f'password="{QUOTED}";',
        },
    ),
    "a scram login line": (
        "LOGIN",
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_jaas_config": f"{MODULES}.scram.ScramLoginModule required\n  username={USER}\n"
            f"  password='{SCRAM_PASSWORD}' ;",
        },
    ),
}


@pytest.mark.parametrize("name", LOGINS)
def test_all_clients_get_in(kafka: tuple[dict[str, str], Certificates], name: str) -> None:
    listener, given = LOGINS[name]
    round_trip(settings_for(kafka, listener, **given))


@pytest.mark.parametrize("form", ["one file", "two files", "text", "pkcs12", "pkcs12 trust"])
def test_a_client_certificate(kafka: tuple[dict[str, str], Certificates], form: str, tmp_path: Path) -> None:
    certificates = kafka[1]
    store = certificates.store("client")
    text = Path(store).read_text()
    forms: dict[str, Callable[[], Settings]] = {
        "one file": lambda: {"ssl_keystore_location": store, "ssl_keystore_type": "PEM"},
        "two files": lambda: {"ssl_key_location": store, "ssl_certificate_location": store},
        "text": lambda: {
            "ssl_key_pem": text,
            "ssl_certificate_pem": " ".join(text[text.index("-----BEGIN CERT") :].split("\n")),
            "ssl_truststore_certificates": Path(certificates.ca).read_text(),
            "ssl_ca_location": None,
        },
        "pkcs12": lambda: {
            "ssl_keystore_location": as_pkcs12(store, tmp_path / "client.p12", "key-secret"),
            "ssl_keystore_password": "key-secret",
        },
        "pkcs12 trust": lambda: {
            "ssl_truststore_location": as_pkcs12_trust(certificates.ca, tmp_path / "ca.p12", "trusted"),
            "ssl_truststore_password": "trusted",
            "ssl_keystore_location": store,
            "ssl_ca_location": None,
        },
    }
    given = {name: value for name, value in forms[form]().items() if value is not None}
    settings = settings_for(kafka, "MUTUAL", security_protocol="SSL", **given)
    if form in ("text", "pkcs12 trust"):
        del settings["ssl.ca.location"]
    with Admin(settings) as admin:
        admin.list_topics(timeout=SECONDS)


def as_pkcs12_trust(ca: str, target: Path, password: str) -> str:
    certificate = x509.load_pem_x509_certificate(Path(ca).read_bytes())
    store = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(certificate, b"ca")], BestAvailableEncryption(password.encode())
    )
    target.write_bytes(store)
    return str(target)


TLS = {"security_protocol": "SSL"}
MISTAKES: dict[str, tuple[str, Settings, str]] = {
    "another ca": ("TLS", TLS | {"ssl_ca_location": "STRANGER"}, "signed by a CA that is not trusted here"),
    "the system's cas": ("TLS", TLS | {"ssl_ca_location": ""}, "signed by a CA that is not trusted here"),
    "expired": ("EXPIRED", TLS, "its certificate has expired: renew it, or set this machine's clock"),
    "not valid yet": (
        "FUTURE",
        TLS,
        "its certificate is not valid yet: renew it, or set this machine's clock",
    ),
    "host name": ("OTHER", TLS, "its certificate is not for the host name 127.0.0.1"),
    "no client certificate": ("MUTUAL", TLS, "it requires a client certificate: set ssl.keystore.location"),
    "no client certificate in tls 1.2": (
        "MUTUAL",
        TLS | {"ssl_enabled_protocols": "TLSv1.2"},
        "it requires a client certificate: set ssl.keystore.location",
    ),
    "a stranger's certificate": (
        "MUTUAL",
        TLS | {"ssl_keystore_location": "STRANGER"},
        "it does not accept this client's certificate",
    ),
    "tls on a plain port": (
        "PLAINTEXT",
        TLS,
        "it does not speak TLS on this port: set security.protocol to PLAINTEXT",
    ),
    "plain on a tls port": ("TLS", {}, "it requires TLS on this port: set security.protocol to SSL"),
    "plain on a login port": (
        "LOGIN",
        {},
        "it requires TLS on this port: set security.protocol to SASL_SSL and sasl.mechanism to ",
    ),
    "no login": (
        "OPEN",
        {},
        "it requires a login on this port: set security.protocol to SASL_PLAINTEXT and sasl.mechanism to ",
    ),
    "a login where none is": (
        "TLS",
        login("PLAIN", PASSWORD),
        "expects no login on this port: set security.protocol to SSL",
    ),
    "plain password": (
        "LOGIN",
        login("PLAIN", "wrong-secret"),
        "did not accept the user 'alice' with sasl.mechanism PLAIN: Authentication failed",
    ),
    "scram password": (
        "LOGIN",
        login("SCRAM-SHA-512", "wrong-secret"),
        "did not accept the user 'alice' with sasl.mechanism SCRAM-SHA-512: Authentication failed",
    ),
    "token": (
        "LOGIN",
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: ("wrong-secret", 0),
        },
        'did not accept the token with sasl.mechanism OAUTHBEARER: {"status":"invalid_token"}',
    ),
    "no token": (
        "LOGIN",
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "oauth_cb": lambda _: 1 / 0},
        "oauth_cb, which gets tokens, raised ZeroDivisionError",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_named_at_once(kafka: tuple[dict[str, str], Certificates], name: str) -> None:
    listener, given, sentence = MISTAKES[name]
    given = {
        key: kafka[1].store("stranger") if value == "STRANGER" else value for key, value in given.items()
    }
    with Admin(settings_for(kafka, listener, **given)) as admin, pytest.raises(AuthenticationError) as caught:
        admin.list_topics(timeout=SECONDS)
    assert sentence in str(caught.value)
    assert name == "no token" or kafka[0][listener] in str(caught.value), "the error names the broker"
    assert "wrong-secret" not in str(caught.value)


def wrong(kafka: tuple[dict[str, str], Certificates]) -> Settings:
    return settings_for(kafka, "LOGIN", **login("SCRAM-SHA-256", "wrong-secret"))


def test_a_consumer_raises_it_from_every_call_and_does_not_try_for_ever(
    kafka: tuple[dict[str, str], Certificates],
) -> None:
    with Consumer({**wrong(kafka), "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        calls: list[Callable[[], object]] = [
            lambda: consumer.poll(timeout=SECONDS),
            lambda: consumer.commit({PARTITION: 1}),
            lambda: consumer.committed([PARTITION]),
            consumer.topics,
            lambda: consumer.poll(timeout=0),
        ]
        for call in calls * 3:
            with pytest.raises(AuthenticationError, match="did not accept the user 'alice'"):
                call()
        assert consumer.metrics()["connections_opened"] == 1


def test_a_producer_raises_it_from_send(kafka: tuple[dict[str, str], Certificates]) -> None:
    with (
        Producer(wrong(kafka)) as producer,
        pytest.raises(AuthenticationError, match="did not accept the user 'alice'"),
    ):
        producer.send("t", b"value")


@pytest.mark.parametrize("kind", [Admin, Producer, Consumer])
def test_what_is_wrong_with_a_file_is_said_when_the_client_is_made(
    kafka: tuple[dict[str, str], Certificates], kind: Any, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    with pytest.raises(MillstreamError, match=r"ca.pem is neither PEM nor PKCS#12"):
        kind(settings_for(kafka, "TLS", security_protocol="SSL", ssl_ca_location=str(path)))
