"""SCRAM against the examples of its RFCs, and both sides against each other."""

from __future__ import annotations

from base64 import b64decode
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import CorruptMessage, SaslAuthenticationFailedError
from millstream.security.sasl.scram import (
    MECHANISMS,
    ScramClient,
    ScramMechanism,
    ScramServer,
    parse_client_first,
    parse_server_first,
)

SHA_256 = MECHANISMS["SCRAM-SHA-256"]

SHA_1_EXAMPLE = (  # RFC 5802, section 5
    ScramMechanism("SCRAM-SHA-1", "sha1", 0),
    "fyko+d2lbbFgONRv9qkxdawL",
    "3rfcNHYJY1ZVvWVs7j",
    "QSXCR+Q6sek8bf92",
    "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
SHA_256_EXAMPLE = (  # RFC 7677, section 3
    SHA_256,
    "rOprNGfwEbeRWgbNEkqO",
    "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    "W22ZaJ0SNY7soEsUEjb6gQ==",
    "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


@pytest.mark.parametrize("example", [SHA_1_EXAMPLE, SHA_256_EXAMPLE], ids=["sha-1", "sha-256"])
def test_the_examples_of_the_rfcs(example: tuple[ScramMechanism, str, str, str, str, str]) -> None:
    mechanism, client_nonce, server_nonce, salt, proof, signature = example
    client = ScramClient(mechanism, "user", client_nonce)
    assert client.first() == f"n,,n=user,r={client_nonce}".encode()

    credential = mechanism.credential("pencil", b64decode(salt), 4096)
    server = ScramServer(mechanism, parse_client_first(client.first()), credential, server_nonce)
    assert server.challenge() == f"r={client_nonce}{server_nonce},s={salt},i=4096".encode()

    final = client.final(server.challenge(), mechanism.salt_password("pencil", b64decode(salt), 4096))
    assert final == f"c=biws,r={client_nonce}{server_nonce},p={proof}".encode()
    assert server.final(final) == f"v={signature}".encode()
    client.verify(server.final(final))


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(MECHANISMS)),
    st.text("aé,=!", min_size=1),
    st.text(min_size=1),
    st.text(min_size=1),
)
def test_only_the_right_password_is_accepted(
    mechanism_name: str, user: str, password: str, tried: str
) -> None:
    mechanism = MECHANISMS[mechanism_name]
    client = ScramClient(mechanism, user, "abc", {"tokenauth": "true"})
    first = parse_client_first(client.first())
    assert (first.username, first.extensions) == (user, {"tokenauth": "true"})
    server = ScramServer(mechanism, first, mechanism.credential(password, b"salt", 4096), "def")
    final = client.final(server.challenge(), mechanism.salt_password(tried, b"salt", 4096))
    if tried == password:
        client.verify(server.final(final))
    else:
        with pytest.raises(SaslAuthenticationFailedError):
            server.final(final)


def exchange() -> tuple[ScramClient, ScramServer, bytes]:
    client = ScramClient(SHA_256, "user", "abc")
    server = ScramServer(
        SHA_256, parse_client_first(client.first()), SHA_256.credential("pencil", b"salt", 4096), "def"
    )
    return client, server, client.final(server.challenge(), SHA_256.salt_password("pencil", b"salt", 4096))


def test_a_broker_that_does_not_know_the_password_is_refused() -> None:
    client, server, final = exchange()
    with pytest.raises(SaslAuthenticationFailedError, match="does not know"):
        client.verify(b"v=" + server.final(final)[3:5] + b"A=")
    with pytest.raises(SaslAuthenticationFailedError, match="unknown-user"):
        client.verify(b"e=unknown-user")


def test_a_message_of_another_exchange_is_refused() -> None:
    client, server, final = exchange()
    with pytest.raises(CorruptMessage, match="nonce"):
        client.challenge(server.challenge().replace(b"abcdef", b"abc"))
    with pytest.raises(CorruptMessage, match="nonce"):
        client.challenge(server.challenge().replace(b"abcdef", b"xyz"))
    with pytest.raises(CorruptMessage, match="another exchange"):
        server.final(final.replace(b"abcdef", b"abcdeg"))
    with pytest.raises(CorruptMessage, match="binds a channel"):
        server.final(final.replace(b"c=biws", b"c=eSws"))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"p=tls-unique,,n=u,r=a",
        b"n,,n=u=x,r=a",
        b"n,,n=u,r= ",
        b"\xff",
        b"n,,n=user,r=" + b"a" * 513,
        b"n,,n=user,r=abc,tokenauth",
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(CorruptMessage):
        parse_client_first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"r=a,s=c2FsdA==",
        b"r=a,s=!,i=4096",
        b"r=a,s=c2FsdA==,i=x",
        b"e=no",
        b"\xff",
        b"r=a,s=c2FsdA==,i=1",
        b"r=a,s=c2FsdA==,i=999999999",
    ],
)
def test_a_malformed_challenge_is_refused(message: bytes) -> None:
    with pytest.raises(CorruptMessage):
        parse_server_first(message)


@pytest.mark.parametrize(
    "message", [b"", b"c=biws,r=abcdef", b"c=biws,r=abcdef,p=!", b"c=biws,r=abcdef,p=AAAA"]
)
def test_a_malformed_proof_is_refused(message: bytes) -> None:
    _, server, _ = exchange()
    with pytest.raises(CorruptMessage):
        server.final(message)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    client, server, _ = exchange()
    for read in (parse_client_first, client.challenge, server.final):
        with suppress(CorruptMessage, SaslAuthenticationFailedError):
            read(message)


def test_a_credential_does_not_show_its_keys() -> None:
    assert repr(SHA_256.credential("pencil", b"salt", 4096)) == "ScramCredential(iterations=4096)"
