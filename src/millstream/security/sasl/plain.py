"""SASL PLAIN (RFC 4616): the user's name and password in one message, so use it over TLS only."""

from __future__ import annotations

from typing import NamedTuple

from millstream.errors import CorruptMessage


class PlainLogin(NamedTuple):
    """What a PLAIN message holds. ``authorization_id`` is empty, or the user to act as."""

    authorization_id: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"PlainLogin(username={self.username!r})"


def encode_plain(username: str, password: str, authorization_id: str = "") -> bytes:
    """Build the only message of the mechanism; no value may hold a null character."""
    values = (authorization_id, username, password)
    if any("\0" in value for value in values):
        raise ValueError("a user's name and password cannot hold a null character")
    return "\0".join(values).encode()


def parse_plain(message: bytes) -> PlainLogin:
    """Read a client's message; raises CorruptMessage, which never quotes the password."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise CorruptMessage("the PLAIN message is not UTF-8") from None
    if len(parts) != 3:
        raise CorruptMessage("the PLAIN message must hold three values, separated by null characters")
    if not parts[1] or not parts[2]:
        raise CorruptMessage("the PLAIN message must name a user and hold a password")
    return PlainLogin(*parts)
