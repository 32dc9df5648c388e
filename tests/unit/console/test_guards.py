"""Which names a console for this machine answers to; and addresses of pages for every name there can be."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest

from millstream.console.web.endpoints import group_url, topic_url
from millstream.console.web.guards import host_of, is_loopback


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "localhost.", "::1", "[::1]"]
)
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "192.168.1.5", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example"],
)
def test_names_of_others(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("127.0.0.1:8090", "127.0.0.1"),
        ("localhost", "localhost"),
        ("[::1]:8090", "::1"),
        ("[::1]", "::1"),
        ("evil.example:80", "evil.example"),
        ("", ""),
    ],
)
def test_the_name_in_a_host_header(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    "name", ["plain", "a/b", "a b?c#d", "quo\"te'", "100%", "ünï", "<b>", ".", "..", "a/../b"]
)
def test_a_group_of_any_name_has_an_address(name: str) -> None:
    parts = urlsplit(group_url(name))
    path = parts.path.removeprefix("/groups/")
    assert "/" not in path and path not in (".", "..")
    assert unquote(path) == name or parts.query == f"name={name}"
    assert not set(group_url(name)) & set("<>\"' ")


def test_a_topic_with_a_query() -> None:
    assert topic_url("orders") == "/topics/orders"
    assert topic_url("orders", partition=0, offset=None) == "/topics/orders?partition=0"
