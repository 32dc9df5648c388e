"""What strangers try on a secured broker: none gets in, and none keeps others out."""

from __future__ import annotations

import json
import socket
import ssl
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from millstream import EmbeddedBroker
from millstream.broker import server
from millstream.errors import ErrorCode
from millstream.security.sasl import scram
from millstream.security.sasl.oauthbearer import encode_bearer
from millstream.security.sasl.plain import encode_plain
from millstream.wire import apis
from millstream.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    ScramCredentialUpsertion,
)
from tests.system.raw_client import RawClient, running_broker
from tests.system.secured import (
    ADMIN,
    ADMIN_PASSWORD,
    AUTHORIZER,
    Certificates,
    make_certificates,
    secured_broker,
)
from tests.waiting import until

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
SCRAM = scram.MECHANISMS["SCRAM-SHA-256"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def signing_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def broker(
    certificates: Certificates, signing_key: rsa.RSAPrivateKey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(signing_key.public_key()))
    keys.write_text(json.dumps({"keys": [{**public, "kid": "one", "use": "sig"}]}))
    with secured_broker(
        certificates,
        "SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        authorizer_class_name=AUTHORIZER,
        super_users="User:admin",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_audience=AUDIENCE,
        sasl_oauthbearer_expected_issuer=ISSUER,
    ) as running:
        yield running


@pytest.fixture
def stranger(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.addresses["SASL_PLAINTEXT"]) as client:
        yield client


def handshake(client: RawClient, mechanism: str) -> SaslHandshakeResponse:
    return client.call(SaslHandshakeRequest(mechanism=mechanism), 1, SaslHandshakeResponse)


def send_token(client: RawClient, message: bytes) -> SaslAuthenticateResponse:
    return client.call(SaslAuthenticateRequest(auth_bytes=message), 2, SaslAuthenticateResponse)


def log_in(client: RawClient, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> SaslAuthenticateResponse:
    assert handshake(client, "PLAIN").error_code == 0
    return send_token(client, encode_plain(user, password))


def scram_log_in(client: RawClient, user: str, password: str) -> SaslAuthenticateResponse:
    exchange = scram.ScramClient(SCRAM, user, "nonce")
    handshake(client, SCRAM.name)
    challenge = send_token(client, exchange.first()).auth_bytes
    found = exchange.challenge(bytes(challenge))
    salted = SCRAM.salt_password(password, found.salt, found.iterations)
    return send_token(client, exchange.final(bytes(challenge), salted))


def add_scram_user(broker: EmbeddedBroker, user: str) -> None:
    salt = b"0123456789abcdef"
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=SCRAM.type_id,
        iterations=4096,
        salt=salt,
        salted_password=SCRAM.salt_password(f"{user}-secret", salt, 4096),
    )
    with RawClient(broker.addresses["SASL_PLAINTEXT"]) as admin:
        assert log_in(admin).error_code == 0
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
        (result,) = admin.call(request, 0, AlterUserScramCredentialsResponse).results
        assert result.error_code == 0, result.error_message


# --- before a login


@pytest.mark.parametrize("api", [api for api in apis.all_apis().values() if api.name != "ApiVersions"])
def test_no_request_is_answered_before_a_login(stranger: RawClient, api: Any) -> None:
    """The body does not matter: it is not even decoded."""
    if api.name in ("SaslHandshake", "SaslAuthenticate"):
        pytest.skip("requests of the login")
    header = (
        api.key.to_bytes(2, "big") + api.max_version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + bytes(64)
    )
    stranger.sock.sendall(len(header).to_bytes(4, "big") + header)
    assert stranger.is_closed_by_peer()


def test_versions_are_told_before_a_login_but_not_in_the_middle_of_one(stranger: RawClient) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    versions = stranger.call(request, 3, ApiVersionsResponse)
    assert {17, 36} <= {each.api_key for each in versions.api_keys}
    handshake(stranger, "PLAIN")
    stranger.send(request, 3)
    assert stranger.is_closed_by_peer()


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(stranger: RawClient) -> None:
    answer = handshake(stranger, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256"]


def test_tokens_without_a_handshake_end_the_connection(stranger: RawClient) -> None:
    stranger.send(SaslAuthenticateRequest(auth_bytes=encode_plain(ADMIN, ADMIN_PASSWORD)), 2)
    assert stranger.is_closed_by_peer()


@pytest.mark.parametrize("size", [600_000, 0x7FFF_FFFF])
def test_giant_frames_of_strangers_are_not_received(stranger: RawClient, size: int) -> None:
    stranger.sock.sendall(size.to_bytes(4, "big") + b"\0\x24\0\2")
    assert stranger.is_closed_by_peer()


def test_the_first_request_after_a_login_may_be_large(broker: EmbeddedBroker, stranger: RawClient) -> None:
    """A producer that reconnects sends what has queued up."""
    assert log_in(stranger).error_code == 0
    stranger.create_topic("large")
    with RawClient(broker.addresses["SASL_PLAINTEXT"]) as reconnected:
        assert log_in(reconnected).error_code == 0
        assert reconnected.produce("large", b"x" * 600_000).error_code == 0


def test_a_giant_name_of_an_extension_is_not_repeated(stranger: RawClient) -> None:
    handshake(stranger, "OAUTHBEARER")
    message = b"n,,\x01auth=Bearer a.b.c\x01" + b"1" * 40_000 + b"=x\x01\x01"
    stranger.send(SaslAuthenticateRequest(auth_bytes=message), 1)
    _, answer = stranger.receive(SaslAuthenticateRequest, 1)
    assert isinstance(answer, SaslAuthenticateResponse)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert len(answer.error_message or "") < 1_000


def test_giant_messages_of_an_exchange_are_refused(stranger: RawClient) -> None:
    handshake(stranger, "PLAIN")
    stranger.send(SaslAuthenticateRequest(auth_bytes=bytes(100_000)), 2)
    assert stranger.is_closed_by_peer()


def test_who_does_not_log_in_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOGIN_MS", 0)
    settings: dict[str, object] = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    with running_broker(tmp_path, settings=settings) as broker, RawClient(broker.address) as client:
        handshake(client, "SCRAM-SHA-512")
        assert client.is_closed_by_peer()


# --- logins


def refusal(broker: EmbeddedBroker, attempt: Callable[[RawClient], SaslAuthenticateResponse]) -> str | None:
    """The broker's answer to a login that must fail; the connection ends after it."""
    with RawClient(broker.addresses["SASL_PLAINTEXT"]) as client:
        answer = attempt(client)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed_by_peer()
        return answer.error_message


def test_an_unknown_user_gets_the_same_answers_as_a_wrong_password(broker: EmbeddedBroker) -> None:
    add_scram_user(broker, "known")
    assert refusal(broker, lambda client: log_in(client, "ann", "no")) == refusal(
        broker, lambda client: log_in(client, "nobody", "no")
    )
    assert refusal(broker, lambda client: scram_log_in(client, "known", "no")) == refusal(
        broker, lambda client: scram_log_in(client, "nobody", "no")
    )
    challenges = []
    for user in ("nobody", "nobody", "known"):
        with RawClient(broker.addresses["SASL_PLAINTEXT"]) as client:
            handshake(client, SCRAM.name)
            first = send_token(client, scram.ScramClient(SCRAM, user, "nonce").first())
            challenges.append(scram.parse_server_first(bytes(first.auth_bytes)))
    one, again, known = challenges
    assert one.salt == again.salt, "a made-up salt stays the same, as a stored one does"
    assert (one.iterations, len(one.salt)) == (known.iterations, len(known.salt))


def test_a_replayed_scram_proof_is_worthless(broker: EmbeddedBroker) -> None:
    add_scram_user(broker, "replayed")
    exchange = scram.ScramClient(SCRAM, "replayed", "nonce")
    with RawClient(broker.addresses["SASL_PLAINTEXT"]) as client:
        handshake(client, SCRAM.name)
        challenge = bytes(send_token(client, exchange.first()).auth_bytes)
        found = exchange.challenge(challenge)
        final = exchange.final(
            challenge, SCRAM.salt_password("replayed-secret", found.salt, found.iterations)
        )
        assert send_token(client, final).error_code == 0

    def replay(client: RawClient) -> SaslAuthenticateResponse:
        handshake(client, SCRAM.name)
        send_token(client, exchange.first())
        return send_token(client, final)

    assert "nonce differs" in str(refusal(broker, replay))


def test_a_client_cannot_become_another_user(broker: EmbeddedBroker) -> None:
    def reauthenticate(client: RawClient) -> SaslAuthenticateResponse:
        assert log_in(client, "ann", "ann-secret").error_code == 0
        assert log_in(client, "ann", "ann-secret").error_code == 0, "as the same user, at any time"
        return log_in(client, ADMIN, ADMIN_PASSWORD)

    refusal(broker, reauthenticate)


def test_a_plain_user_cannot_act_as_another(broker: EmbeddedBroker) -> None:
    def attempt(client: RawClient) -> SaslAuthenticateResponse:
        handshake(client, "PLAIN")
        return send_token(client, encode_plain("ann", "ann-secret", authorization_id=ADMIN))

    refusal(broker, attempt)


# --- tokens


def claims(**changes: object) -> dict[str, object]:
    now = int(time.time())
    return {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 300, **changes}


def token_log_in(client: RawClient, token: str) -> SaslAuthenticateResponse:
    handshake(client, "OAUTHBEARER")
    answer = send_token(client, encode_bearer(token))
    if answer.auth_bytes:  # the refusal, which the client must confirm
        assert json.loads(bytes(answer.auth_bytes))["status"] == "invalid_token"
        return send_token(client, b"\x01")
    return answer


def test_a_good_token_logs_in_until_it_expires(stranger: RawClient, signing_key: rsa.RSAPrivateKey) -> None:
    token = jwt.encode(claims(), signing_key, "RS256", headers={"kid": "one"})
    answer = token_log_in(stranger, token)
    assert answer.error_code == 0, answer.error_message
    assert 0 < answer.session_lifetime_ms <= 300_000


def test_bad_tokens_are_refused(broker: EmbeddedBroker, signing_key: rsa.RSAPrivateKey) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    unsigned = ".".join(
        urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in ({"alg": "none", "typ": "JWT"}, claims())
    )
    kid = {"kid": "one"}
    bad = {
        "unsigned": unsigned + ".",
        "another key": jwt.encode(claims(), other, "RS256", headers=kid),
        "an unknown key": jwt.encode(claims(), other, "RS256", headers={"kid": "two"}),
        "a shared secret": jwt.encode(claims(), "public" * 10, "HS256", headers=kid),
        "another audience": jwt.encode(claims(aud="mail"), signing_key, "RS256", headers=kid),
        "another issuer": jwt.encode(claims(iss="https://evil.example"), signing_key, "RS256", headers=kid),
        "expired": jwt.encode(claims(exp=int(time.time()) - 3600), signing_key, "RS256", headers=kid),
        "not yet valid": jwt.encode(claims(nbf=int(time.time()) + 3600), signing_key, "RS256", headers=kid),
        "no user": jwt.encode(claims(sub=""), signing_key, "RS256", headers=kid),
        "never expires": jwt.encode(
            {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE}, signing_key, "RS256", headers=kid
        ),
    }
    for why, token in bad.items():
        with RawClient(broker.addresses["SASL_PLAINTEXT"]) as client:
            answer = token_log_in(client, token)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, why


# --- TLS


def test_old_versions_of_tls_are_refused(broker: EmbeddedBroker, certificates: Certificates) -> None:
    host, _, port = broker.addresses["SASL_SSL"].rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection((host, int(port))) as sock, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(sock, server_hostname="localhost")


def test_a_plain_request_to_a_tls_listener_is_not_answered(broker: EmbeddedBroker) -> None:
    with RawClient(broker.addresses["SSL"]) as client:
        client.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
        client.sock.recv(100)  # an alert
        assert client.is_closed_by_peer()


def test_half_open_handshakes_keep_no_one_out(broker: EmbeddedBroker, certificates: Certificates) -> None:
    host, _, port = broker.addresses["SSL"].rpartition(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(1500)]
    try:
        context = ssl.create_default_context(cafile=certificates.ca)
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as sock,
        ):
            assert sock.version() == "TLSv1.3"
        idle[0].settimeout(30)
        assert idle[0].recv(1) == b"", "the oldest make room for newer ones"
    finally:
        for each in idle:
            each.close()


def test_a_client_certificate_is_a_principal(certificates: Certificates, tmp_path: Path) -> None:
    rules = "RULE:^.*?CN=([a-z]+).*$/$1/U,DEFAULT"
    path = certificates.issue_client("ann")
    with secured_broker(
        certificates,
        "SSL://127.0.0.1:0",
        ssl_client_auth="required",
        ssl_truststore_location=certificates.ca,
        ssl_principal_mapping_rules=rules,
        authorizer_class_name=AUTHORIZER,
        super_users="User:ANN",
    ) as broker:
        context = ssl.create_default_context(cafile=certificates.ca)
        context.load_cert_chain(path)
        with RawClient(broker.bootstrap_servers) as client:
            client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
            client.create_topic("hers")
        without = ssl.create_default_context(cafile=certificates.ca)
        with RawClient(broker.bootstrap_servers) as client:
            client.sock = without.wrap_socket(client.sock, server_hostname="localhost")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                client.create_topic("nobodys")


def test_a_certificate_that_no_rule_maps_is_refused(certificates: Certificates) -> None:
    path = certificates.issue_client("eve")
    with secured_broker(
        certificates,
        "SSL://127.0.0.1:0",
        ssl_client_auth="required",
        ssl_truststore_location=certificates.ca,
        ssl_principal_mapping_rules="RULE:^CN=(ann),O=good$/$1/",
    ) as broker:
        context = ssl.create_default_context(cafile=certificates.ca)
        context.load_cert_chain(path)
        with RawClient(broker.bootstrap_servers) as client:
            client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                client.create_topic("hers")


def test_a_new_certificate_is_used_without_a_restart(certificates: Certificates, tmp_path: Path) -> None:
    with secured_broker(certificates, "SSL://127.0.0.1:0") as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        context = ssl.create_default_context(cafile=certificates.ca)

        def serial() -> object:
            with (
                socket.create_connection((host, int(port))) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as sock,
            ):
                found = sock.getpeercert()
                assert found is not None
                return found["serialNumber"]

        before = serial()
        certificates.issue_server()
        until(lambda: serial() != before, "the new certificate")
        Path(certificates.server).write_text("damaged")
        assert serial() is not None, "a damaged file leaves the old certificate in use"
        certificates.issue_server()


def test_a_certificate_by_reference_is_read_again_when_it_changes(
    certificates: Certificates, tmp_path: Path
) -> None:
    def write() -> None:
        issued = certificates.authority.issue_cert("localhost", "127.0.0.1")
        (tmp_path / "key").write_bytes(issued.private_key_pem.bytes())
        (tmp_path / "chain").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))

    write()
    settings: dict[str, object] = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.key": f"${{dir:{tmp_path}:key}}",
        "ssl.keystore.certificate.chain": f"${{dir:{tmp_path}:chain}}",
    }
    with EmbeddedBroker(settings=settings) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        context = ssl.create_default_context(cafile=certificates.ca)

        def certificate() -> bytes | None:
            with (
                socket.create_connection((host, int(port))) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as sock,
            ):
                return sock.getpeercert(binary_form=True)

        before = certificate()
        write()
        assert certificate() != before
        (tmp_path / "key").unlink()
        assert certificate() is not None, "a missing file leaves the old certificate in use"
