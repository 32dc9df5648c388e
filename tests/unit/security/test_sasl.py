"""The messages of PLAIN and OAUTHBEARER, as both sides write and read them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import CorruptMessage
from millstream.security.sasl.oauthbearer import encode_bearer, encode_refusal, parse_bearer, parse_refusal
from millstream.security.sasl.plain import encode_plain, parse_plain

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(TEXT, TEXT)
def test_plain_carries_any_name_and_password(username: str, password: str) -> None:
    login = parse_plain(encode_plain(username, password))
    assert (login.authorization_id, login.username, login.password) == ("", username, password)


def test_plain_is_written_as_the_rfc_does() -> None:
    assert encode_plain("tim", "tanstaaftanstaaf") == b"\0tim\0tanstaaftanstaaf"  # RFC 4616, section 4
    assert parse_plain(b"Ursel\0Kurt\0xipj3plmq").authorization_id == "Ursel"


@pytest.mark.parametrize("message", [b"", b"\0user", b"\0user\0", b"\0\0word", b"a\0b\0c\0d", b"\0u\0\xff"])
def test_a_malformed_plain_message_is_refused_without_quoting_it(message: bytes) -> None:
    with pytest.raises(CorruptMessage) as caught:
        parse_plain(message)
    assert "word" not in str(caught.value).removesuffix("hold a password")


def test_a_plain_login_does_not_show_its_password() -> None:
    assert "tanstaaf" not in repr(parse_plain(b"\0tim\0tanstaaf"))


def test_plain_refuses_a_null_character() -> None:
    with pytest.raises(ValueError, match="null character"):
        encode_plain("us\0er", "password")


def test_bearer_is_written_as_the_rfc_does() -> None:
    token = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="  # RFC 7628, section 4.1
    message = encode_bearer(token, "user@example.com", {"host": "server.example.com", "port": "143"})
    pairs = f"auth=Bearer {token}\x01host=server.example.com\x01port=143"
    assert message == f"n,a=user@example.com,\x01{pairs}\x01\x01".encode()
    assert encode_bearer("abc") == b"n,,\x01auth=Bearer abc\x01\x01"


def test_bearer_is_read_back() -> None:
    login = parse_bearer(encode_bearer("a.b.c", "a=b,c", {"logicalCluster": "lkc-1", "poolId": "pool x"}))
    assert (login.token, login.authorization_id) == ("a.b.c", "a=b,c")
    assert login.extensions == {"logicalCluster": "lkc-1", "poolId": "pool x"}
    assert "a.b.c" not in repr(login)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01b4d=x\x01\x01",
        b"n,,\x01auth=Bearer abc\x01x=\xff\x01\x01",
    ],
)
def test_a_malformed_bearer_message_is_refused(message: bytes) -> None:
    with pytest.raises(CorruptMessage):
        parse_bearer(message)


@pytest.mark.parametrize(
    ("token", "extensions"),
    [("a b", {}), ("", {}), ("abc", {"auth": "x"}), ("abc", {"a1": "x"}), ("abc", {"a": "\x01"})],
)
def test_what_a_bearer_message_cannot_carry_is_refused(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"token|extension"):
        encode_bearer(token, extensions=extensions)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    for parse in (parse_plain, parse_bearer):
        with suppress(CorruptMessage):
            parse(message)


def test_a_refusal_says_why() -> None:
    assert parse_refusal(encode_refusal("invalid_token")) == "invalid_token"
    assert parse_refusal(encode_refusal("insufficient_scope", "kafka")) == (
        "insufficient_scope (it needs the scope kafka)"
    )
    assert parse_refusal(b"\xff") == parse_refusal(b"[]") == parse_refusal(b"[" * 100_000) == "refused"
