"""Who sent a request that came through proxies, and who only says so."""

from __future__ import annotations

import pytest

from millstream.console.web.proxies import TrustedProxies
from millstream.terminal.outcome import UsageError

PROXIES = TrustedProxies.of(["10.0.0.5", "10.1.0.0/16", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.5", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", ["203.0.113.7, 10.1.2.3"], "203.0.113.7"),
        ("10.0.0.5", ["203.0.113.7", "10.1.2.3"], "203.0.113.7"),
        ("10.0.0.5", ["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", ["1.1.1.1, 10.0.0.5, 203.0.113.7,10.1.2.3"], "203.0.113.7"),
        ("10.0.0.5", ["10.1.2.3"], "10.1.2.3"),
        ("10.0.0.5", [], "10.0.0.5"),
        ("fd00::1", ["2001:db8::7"], "2001:db8::7"),
        ("::ffff:10.0.0.5", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", ["203.0.113.7:50123"], "203.0.113.7"),
        ("10.0.0.5", ["[2001:db8::7]:50123"], "2001:db8::7"),
        ("10.0.0.5", ["::ffff:203.0.113.7"], "203.0.113.7"),
    ],
)
def test_the_last_hop_that_is_no_proxy(peer: str, forwarded: list[str], client: str) -> None:
    assert PROXIES.client(peer, forwarded) == client


@pytest.mark.parametrize("peer", ["203.0.113.7", "10.0.0.6", "10.0.0.50", "fe80::1%eth0"])
@pytest.mark.parametrize("forwarded", [["1.1.1.1"], ["10.0.0.5"], ["1.1.1.1, 10.0.0.5"]])
def test_others_are_not_believed(peer: str, forwarded: list[str]) -> None:
    assert PROXIES.client(peer, forwarded) == peer
    assert TrustedProxies().client("10.0.0.5", forwarded) == "10.0.0.5"


@pytest.mark.parametrize(
    "hop", ["", "unknown", "_hidden", "1.2.3", "[", "1.1.1.1\x00", "1.1.1.1/8", "x" * 9000]
)
def test_a_hop_that_is_no_address_counts_as_the_proxy(hop: str) -> None:
    """Or each made-up word would be another address, with attempts of its own."""
    assert PROXIES.client("10.0.0.5", [hop]) == "10.0.0.5"
    assert PROXIES.client("10.0.0.5", [f"1.1.1.1, {hop}"]) == "10.0.0.5"
    assert PROXIES.client("10.0.0.5", [f"{hop}, 203.0.113.7"]) == "203.0.113.7"


def test_a_socket_without_an_address() -> None:
    assert PROXIES.client("", ["203.0.113.7"]) == ""


@pytest.mark.parametrize("given", ["", "proxy.example", "10.0.0.1/8", "10.0.0.0/33", "*"])
def test_what_is_no_network_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="--trusted-proxy"):
        TrustedProxies.of([given])


@pytest.mark.parametrize("given", ["0.0.0.0/0", "::/0"])
def test_everyone_is_no_proxy(given: str) -> None:
    with pytest.raises(UsageError, match="would believe everyone"):
        TrustedProxies.of([given])
