"""Certificates of brokers and clients: bad ones are refused in one sentence, new ones are used at once."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from millstream import Admin, Consumer, Producer
from millstream.errors import AuthenticationError
from tests.system.secured import Certificates, librdkafka, make_certificates, secured_broker
from tests.waiting import SECONDS, until

DAY = timedelta(days=1)
ROTATIONS = 5


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


def now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def self_signed(authority: trustme.CA) -> bytes:
    return authority.private_key_pem.bytes() + authority.cert_pem.bytes()


BROKERS: dict[str, tuple[Callable[[trustme.CA], bytes], str]] = {
    "expired": (
        lambda ca: ca.issue_cert(
            "127.0.0.1", not_before=now() - 2 * DAY, not_after=now() - DAY
        ).private_key_and_cert_chain_pem.bytes(),
        "its certificate has expired: renew it, or set this machine's clock",
    ),
    "not valid yet": (
        lambda ca: ca.issue_cert(
            "127.0.0.1", not_before=now() + DAY, not_after=now() + 2 * DAY
        ).private_key_and_cert_chain_pem.bytes(),
        "its certificate is not valid yet: renew it, or set this machine's clock",
    ),
    "of another CA": (
        lambda _: trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes(),
        "its certificate is signed by a CA that is not trusted here: set ssl.truststore.location",
    ),
    "self-signed": (
        lambda _: self_signed(trustme.CA()),
        "its certificate is self-signed and not trusted here: set ssl.truststore.location",
    ),
    "of another host": (
        lambda ca: ca.issue_cert("kafka.example.com").private_key_and_cert_chain_pem.bytes(),
        "its certificate is not for the host name 127.0.0.1",
    ),
}


@pytest.mark.parametrize("what", BROKERS)
def test_a_bad_certificate_of_the_broker_is_refused(certificates: Certificates, what: str) -> None:
    make, sentence = BROKERS[what]
    Path(certificates.server).write_bytes(make(certificates.authority))
    with secured_broker(certificates, "SASL_SSL://127.0.0.1:0") as broker:
        assert_refused(librdkafka(broker, certificates), sentence)


def assert_refused(settings: dict[str, str], sentence: str) -> None:
    with Admin(settings) as admin, pytest.raises(AuthenticationError) as raised:
        admin.list_topics(timeout=SECONDS)
    assert sentence in str(raised.value)


def revocations(authority: trustme.CA, *revoked: bytes) -> bytes:
    """A list of the CA with these certificates, in PEM."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    made = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now() - DAY)
        .next_update(now() + DAY)
    )
    for pem in revoked:
        number = x509.load_pem_x509_certificate(pem).serial_number
        entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now() - DAY)
        made = made.add_revoked_certificate(entry.build())
    key = load_pem_private_key(authority.private_key_pem.bytes(), None)
    return made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)  # type: ignore[arg-type]


def test_a_revoked_certificate_of_the_broker_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    issued = certificates.authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(certificates.server)
    crl = tmp_path / "crl.pem"
    with secured_broker(certificates, "SASL_SSL://127.0.0.1:0") as broker:
        settings = librdkafka(broker, certificates, **{"ssl.crl.location": str(crl)})
        crl.write_bytes(revocations(certificates.authority))
        with Admin(settings) as admin:
            assert admin.list_topics(timeout=SECONDS) == []
        crl.write_bytes(revocations(certificates.authority, issued.cert_chain_pems[0].bytes()))
        assert_refused(settings, "its certificate has been revoked")
        crl.write_bytes(revocations(trustme.CA()))
        assert_refused(settings, "there is no revocation list of its CA in ssl.crl.location")


CLIENTS: dict[str, tuple[Callable[[trustme.CA], bytes], str]] = {
    "expired": (
        lambda ca: ca.issue_cert(
            common_name="ann", not_before=now() - 2 * DAY, not_after=now() - DAY
        ).private_key_and_cert_chain_pem.bytes(),
        "this client's certificate has expired: renew it",
    ),
    "of another CA": (
        lambda _: trustme.CA().issue_cert(common_name="ann").private_key_and_cert_chain_pem.bytes(),
        "it does not trust the CA of this client's certificate",
    ),
    "self-signed": (
        lambda _: self_signed(trustme.CA()),
        "it does not trust the CA of this client's certificate",
    ),
}


@pytest.mark.parametrize("what", CLIENTS)
def test_a_bad_certificate_of_a_client_is_refused(
    certificates: Certificates, what: str, tmp_path: Path
) -> None:
    make, sentence = CLIENTS[what]
    store = tmp_path / "client.pem"
    with secured_broker(
        certificates,
        "SSL://127.0.0.1:0",
        ssl_client_auth="required",
        ssl_truststore_location=certificates.ca,
    ) as broker:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": certificates.ca,
            "ssl.keystore.location": str(store),
        }
        store.write_bytes(Path(certificates.issue_client("ann")).read_bytes())
        with Admin(settings) as admin:
            assert admin.list_topics(timeout=SECONDS) == []
        store.write_bytes(make(certificates.authority))
        assert_refused(settings, sentence)


class Senders:
    """One producer keeps its connection, another one makes a new connection for each record."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.sent = {"kept": 0, "new": 0}
        self._settings = {**settings, "linger.ms": "0"}
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self._work = [self._pool.submit(self._keep), self._pool.submit(self._renew)]

    def _send(self, topic: str, producer: Producer) -> None:
        producer.send(topic, str(self.sent[topic]).encode()).result(SECONDS)
        self.sent[topic] += 1

    def _keep(self) -> None:
        with Producer(self._settings) as producer:
            while not self._stopping.is_set():
                self._send("kept", producer)

    def _renew(self) -> None:
        while not self._stopping.is_set():
            with Producer(self._settings) as producer:
                self._send("new", producer)

    def go_on(self) -> None:
        """Wait until both have sent more."""
        before = dict(self.sent)
        until(
            lambda: all(self.sent[topic] > count for topic, count in before.items()) or self._has_failed(),
            lambda: f"both go on: {self.sent} after {before}",
        )

    def _has_failed(self) -> bool:
        return any(work.done() for work in self._work)

    def stop(self) -> None:
        """End both; raises what they raised."""
        self._stopping.set()
        self._pool.shutdown()
        for work in self._work:
            work.result()


def test_a_certificate_is_rotated_under_load(certificates: Certificates) -> None:
    with secured_broker(certificates, "SASL_SSL://127.0.0.1:0") as broker:
        settings = librdkafka(broker, certificates)
        with Admin(settings) as admin:
            admin.create_topics({"kept": 1, "new": 1})
        senders = Senders(settings)
        try:
            for _ in range(ROTATIONS):
                rotate(certificates, broker.bootstrap_servers)
                senders.go_on()
        finally:
            senders.stop()
        for topic, count in senders.sent.items():
            assert read(settings, topic, count) == list(range(count))


def rotate(certificates: Certificates, address: str) -> None:
    """Replace the broker's certificate, and wait until a new connection gets the new one."""
    before = serial(certificates, address)
    certificates.issue_server()
    until(lambda: serial(certificates, address) != before, "new connections get the new certificate")


def serial(certificates: Certificates, address: str) -> object:
    """The serial number of the certificate that a new connection gets."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=certificates.ca)
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        found = sock.getpeercert()
        assert found is not None
        return found["serialNumber"]


def read(settings: dict[str, str], topic: str, count: int) -> list[int]:
    values: list[int] = []
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(consumer.partitions_for(topic))

        def all_read() -> bool:
            values.extend(int(record.value) for record in consumer.poll(timeout=0.2))
            return len(values) >= count

        until(all_read, lambda: f"{len(values)} of {count} records of {topic}")
    return values
