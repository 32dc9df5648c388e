"""Listeners as Kafka writes them."""

from __future__ import annotations

import pytest

from millstream.broker.security.listeners import Listener, SecurityProtocol, read_listeners
from millstream.errors import ConfigError
from millstream.settings import Address


def test_listeners_have_kafkas_form() -> None:
    found = read_listeners(
        "internal://127.0.0.1:9092,SASL_SSL://[::1]:9093,CONTROLLER://:9094",
        "SASL_SSL://kafka.example.org:443",
        "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        ["CONTROLLER"],
    )
    assert found == (
        Listener("INTERNAL", SecurityProtocol.PLAINTEXT, Address("127.0.0.1", 9092)),
        Listener(
            "SASL_SSL", SecurityProtocol.SASL_SSL, Address("::1", 9093), Address("kafka.example.org", 443)
        ),
    )


def test_a_bare_address_is_plaintext_and_no_host_is_every_address() -> None:
    (bare,) = read_listeners("127.0.0.1:0")
    assert (bare.name, bare.protocol, bare.address.port) == ("PLAINTEXT", SecurityProtocol.PLAINTEXT, 0)
    (every,) = read_listeners("SSL://:9093")
    assert every.address == Address("0.0.0.0", 9093)


@pytest.mark.parametrize(
    ("listeners", "advertised", "protocols", "sentence"),
    [
        ("OUT://127.0.0.1:1", "", "", "the listener OUT has no protocol: add OUT:PROTOCOL"),
        ("OUT://127.0.0.1:1", "", "OUT:TLS", "TLS is not one of PLAINTEXT"),
        ("OUT://127.0.0.1:1", "", "OUT", "write NAME:PROTOCOL"),
        ("SSL://a:1,SSL://b:2", "", "", "listeners has SSL twice"),
        (
            "SSL://a:1",
            "PLAINTEXT://b:2",
            "",
            "advertised.listeners has PLAINTEXT, but listeners has only SSL",
        ),
        ("SSL://a:1", "SSL://b:0", "", "its port must be 1 to 65535"),
        ("SSL://a", "", "", "is not an address"),
        ("", "", "", "names no address to listen on"),
    ],
)
def test_what_contradicts_itself_is_refused(
    listeners: str, advertised: str, protocols: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_listeners(listeners, advertised, protocols)
    assert sentence in str(raised.value)
