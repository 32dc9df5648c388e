"""Certificates and keys in each form, what is wrong with them, and their renewal without a restart."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from millstream.errors import ConfigError
from millstream.security.keystores import identity, pem_identity, trusted_certificates
from millstream.security.tls import TlsContexts, TlsSettings, openssl_cipher
from millstream.security.tls_errors import explain


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def client(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("client@example.com")


@pytest.fixture
def store(client: trustme.LeafCert, tmp_path: Path) -> Path:
    path = tmp_path / "client.pem"
    path.write_bytes(client.private_key_and_cert_chain_pem.bytes())
    return path


def encrypted(client: trustme.LeafCert, password: str) -> bytes:
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))


def chain(client: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in client.cert_chain_pems)


def test_a_key_without_line_breaks_as_a_properties_file_leaves_it(client: trustme.LeafCert) -> None:
    flat = b" ".join(client.private_key_and_cert_chain_pem.bytes().split(b"\n"))
    found = identity(flat, None, "text")
    assert found == identity(client.private_key_and_cert_chain_pem.bytes(), None, "text")
    assert b"PRIVATE" not in repr(found).encode()


def test_an_encrypted_key(client: trustme.LeafCert) -> None:
    text = encrypted(client, "key-secret") + chain(client)
    assert identity(text, "key-secret", "text").key.startswith(b"-----BEGIN PRIVATE KEY-----")
    with pytest.raises(ConfigError, match=r"set ssl.key.password"):
        identity(text, None, "text")
    with pytest.raises(ConfigError, match=r"ssl.key.password is wrong") as caught:
        identity(text, "other-secret", "text")
    assert "other-secret" not in str(caught.value)


def test_pkcs12(client: trustme.LeafCert) -> None:
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    own = x509.load_pem_x509_certificate(client.cert_chain_pems[0].bytes())
    data = pkcs12.serialize_key_and_certificates(
        b"me",
        key,  # type: ignore[arg-type]
        own,
        None,
        BestAvailableEncryption(b"store-secret"),
    )
    assert identity(data, "store-secret", "s").chain == own.public_bytes(Encoding.PEM)
    assert trusted_certificates(data, "store-secret", "s") == own.public_bytes(Encoding.PEM)
    for password, problem in ((None, "its password is missing"), ("x", "its password is wrong")):
        with pytest.raises(ConfigError, match=problem):
            identity(data, password, "s")


def test_a_java_keystore_is_refused_with_the_command_that_converts_it() -> None:
    with pytest.raises(ConfigError) as caught:
        trusted_certificates(b"\xfe\xed\xfe\xed\0\0\0\2", None, "ssl.truststore.location /etc/ca.jks")
    assert str(caught.value) == (
        "ssl.truststore.location /etc/ca.jks is a JKS keystore, which only Java can read. "
        "Convert it with: keytool -importkeystore -srckeystore /etc/ca.jks "
        "-destkeystore /etc/ca.jks.p12 -deststoretype PKCS12"
    )


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is not on the PATH")
def test_the_command_converts_a_real_java_keystore(authority: trustme.CA, tmp_path: Path) -> None:
    java, pem = tmp_path / "ca.jks", tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(pem))
    words = ("-importcert", "-noprompt", "-alias", "ca", "-file", str(pem), "-storetype", "JKS")
    keytool(*words, "-keystore", str(java), "-storepass", "java-secret")
    with pytest.raises(ConfigError, match="JKS keystore") as caught:
        trusted_certificates(java.read_bytes(), "java-secret", f"ssl.truststore.location {java}")
    command = str(caught.value).partition("keytool ")[2].split()
    keytool(*command, "-srcstorepass", "java-secret", "-deststorepass", "java-secret")
    converted = Path(f"{java}.p12").read_bytes()
    assert trusted_certificates(converted, "java-secret", "s").count(b"BEGIN CERTIFICATE") == 1


def keytool(*words: str) -> None:
    subprocess.run(["keytool", *words], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is neither PEM nor PKCS#12"),
        (b"\x30\x82garbage", "not a PKCS#12 store"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "is damaged"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "holds no certificate"),
    ],
)
def test_what_holds_no_certificates(data: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        trusted_certificates(data, None, "the store")


def test_a_key_and_its_certificate_must_belong_together(
    authority: trustme.CA, client: trustme.LeafCert
) -> None:
    other = authority.issue_cert("other@example.com")
    with pytest.raises(ConfigError, match="does not belong to the first certificate"):
        pem_identity(other.private_key_pem.bytes(), chain(client), None, "the store")
    with pytest.raises(ConfigError, match="no private key"):
        pem_identity(chain(client), chain(client), None, "the store")
    with pytest.raises(ConfigError, match="no certificate"):
        pem_identity(client.private_key_pem.bytes(), b"", None, "the store")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"ssl.truststore.location: cannot read /no/ca.pem: No such file"):
        TlsSettings(truststore_location="/no/ca.pem").context()


def test_the_context_checks_names_and_certificates_unless_told_otherwise() -> None:
    strict, trusting = TlsSettings().context(), TlsSettings(verifies_host_name=False).context()
    blind = TlsSettings(verifies_certificate=False).context()
    assert (strict.check_hostname, strict.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (trusting.check_hostname, trusting.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert (blind.check_hostname, blind.verify_mode) == (False, ssl.CERT_NONE)
    assert strict.minimum_version == ssl.TLSVersion.TLSv1_2
    assert TlsSettings(versions=("TLSv1.3",)).context().minimum_version == ssl.TLSVersion.TLSv1_3


def test_changed_files_are_read_again(authority: trustme.CA, store: Path) -> None:
    contexts = TlsContexts(TlsSettings(keystore_location=str(store)))
    first = contexts.current()
    assert contexts.current() is first
    store.write_bytes(authority.issue_cert("renewed@example.com").private_key_and_cert_chain_pem.bytes())
    assert contexts.current() is not first
    store.write_bytes(b"half a fi")
    with pytest.raises(ConfigError, match=r"client.pem is neither PEM nor PKCS#12"):
        contexts.current()


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_by_javas_names(java: str, openssl: str) -> None:
    assert openssl_cipher(java) == openssl
    allowed = {each["name"] for each in TlsSettings(cipher_suites=(java,)).context().get_ciphers()}
    assert openssl in allowed
    assert {name for name in allowed if not name.startswith("TLS_")} == {openssl}


def test_cipher_suites_that_no_one_knows() -> None:
    with pytest.raises(ConfigError, match="OpenSSL knows none of NONSENSE"):
        TlsSettings(cipher_suites=("NONSENSE",)).context()


def test_an_alert_that_is_not_in_the_table_is_still_said() -> None:
    error = ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR] tlsv1 alert internal error")
    assert "internal error" in explain(error, "host", has_certificate=False)


def test_secrets_are_not_shown() -> None:
    shown = repr(TlsSettings(key_password="hidden", keystore_key="hidden", keystore_password="hidden"))
    assert "hidden" not in shown
