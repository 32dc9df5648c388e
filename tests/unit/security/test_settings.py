"""The security settings of clients: both spellings, what is missing, and that no secret is shown."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from millstream.config.security import SecuritySettings
from millstream.errors import ConfigError
from millstream.spark.load.settings import LoadSettings
from millstream.spark.source.options import read_options

LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hidden";'
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}


def config(given: dict[str, Any], cls: type[ClientConfig] = AdminConfig) -> ClientConfig:
    return cls.from_settings({"bootstrap.servers": "h:1", **given})


def refusal(given: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        config(given)
    return str(caught.value)


@pytest.mark.parametrize("cls", [AdminConfig, ConsumerConfig, ProducerConfig])
def test_a_plain_client_has_neither_tls_nor_a_login(cls: type[ClientConfig]) -> None:
    assert (config({}, cls).tls, config({}, cls).sasl) == (None, None)


def test_librdkafkas_names_mean_the_same() -> None:
    ours = {"ssl.truststore.location": "/ca", "ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}
    theirs = {"ssl.ca.location": "/ca", "ssl.key.pem": "k", "ssl.certificate.pem": "c"}
    assert (
        config({"security.protocol": "ssl", **theirs}).tls == config({"security.protocol": "SSL", **ours}).tls
    )
    assert (
        config({**LOGIN, "sasl.password": "p"}).sasl
        == config(
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "u",
                "sasl.password": "p",
            }
        ).sasl
    )
    assert "ssl.ca.location is given twice, as ssl.truststore.location: leave one out" in refusal(
        {"ssl.truststore.location": "/a", "ssl.ca.location": "/b"}
    )


def test_a_login_line_is_read() -> None:
    sasl = config({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": LINE}).sasl
    assert sasl is not None
    found = sasl.login()
    assert (found.username, found.password) == ("u", "hidden")


def test_a_login_line_with_references(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    monkeypatch.setenv("MILLSTREAM_PW", 'tricky";')
    part = config({**given, "sasl.jaas.config": LINE.replace("hidden", "${env:MILLSTREAM_PW}")}).sasl
    assert part is not None
    assert part.login().password == 'tricky";'
    monkeypatch.setenv("MILLSTREAM_LINE", LINE)
    whole = config({**given, "sasl.jaas.config": "${env:MILLSTREAM_LINE}"}).sasl
    assert whole is not None
    assert whole.login().password == "hidden"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"security.protocol": "SASL_SSL"}, "sasl_mechanism is missing: set it to one of PLAIN"),
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS': it must be PLAINTEXT or SSL"),
        (LOGIN, "sasl_password is missing"),
        ({**LOGIN, "sasl.mechanism": "SCRAM-SHA-1"}, "must be PLAIN or SCRAM-SHA-256"),
        ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, "set oauth_cb to a callable"),
        ({**LOGIN, "sasl.mechanism": "gssapi"}, "Kerberos (GSSAPI) is not supported yet"),
        (
            {**LOGIN, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": LINE},
            "has a PlainLoginModule, which is for sasl_mechanism PLAIN, not SCRAM-SHA-256",
        ),
        ({**LOGIN, "sasl.jaas.config": LINE[:-1]}, "sasl_jaas_config must end with a semicolon"),
        ({"sasl.password": "hidden"}, "security_protocol is PLAINTEXT, which has no login"),
        ({"sasl.password": 5}, "sasl.password: it must be a string"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "must not allow TLS before 1.2"),
        ({"ssl.enabled.protocols": "SSLv3"}, "must list TLSv1.2 or TLSv1.3"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "AWS_MSK_IAM"},
            "needs security_protocol SASL_SSL",
        ),
        ({"ssl.ca.loaction": "x"}, "did you mean ssl.ca.location"),
    ],
)
def test_what_is_missing_or_contradictory_is_named(given: dict[str, Any], problem: str) -> None:
    message = refusal(given)
    assert problem in message
    assert "hidden" not in message


def test_no_secret_is_shown() -> None:
    secrets = SecuritySettings.secrets()
    assert {
        "sasl_password",
        "sasl_jaas_config",
        "ssl_key_password",
        "ssl_key_pem",
        "ssl_keystore_key",
    } <= secrets
    text = {
        name: "hidden" for name in secrets if name in SecuritySettings.names() and name != "sasl_jaas_config"
    }
    shown = config({**LOGIN, **text, "sasl.jaas.config": LINE})
    assert "hidden" not in repr(shown)
    assert "hidden" not in repr((shown.tls, shown.sasl))
    assert shown.sasl is not None
    assert "hidden" not in repr(shown.sasl.login())


def test_every_setting_whose_name_says_secret_is_declared_as_one() -> None:
    said = {
        name
        for name in SecuritySettings.names()
        if any(word in name for word in ("password", "secret", "jaas"))
    }
    assert said <= SecuritySettings.secrets()


def test_an_address_as_providers_show_it() -> None:
    shown = config({"bootstrap.servers": "SASL_SSL://pkc-1.eu.confluent.cloud:9092, SSL://b:1"})
    assert [str(address) for address in shown.bootstrap_servers] == ["pkc-1.eu.confluent.cloud:9092", "b:1"]


def test_the_settings_of_loads_and_of_the_source_do_not_show_them() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": LINE}
    nothing: Any = None
    load = LoadSettings(nothing, topics=["t"], group_id="g", sink=nothing, properties=given)
    source = read_options(
        {"subscribe": "t", "kafka.bootstrap.servers": "h:1"}
        | {f"kafka.{name}": given[name] for name in given},
        streaming=False,
    )
    assert source.settings["sasl.jaas.config"] == LINE
    assert "hidden" not in repr((load, source))
