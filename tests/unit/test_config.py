"""Settings: Kafka's names and defaults, read as Kafka reads them, refused with a hint when wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from docs.generate import settings_table
from millstream.config import (
    Address,
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    parse_address,
)
from millstream.errors import ConfigError
from millstream.settings import Settings, dotted

SERVERS = "localhost:9092"


def consumer(settings: Mapping[str, object] | None = None, **keywords: object) -> ConsumerConfig:
    return ConsumerConfig.from_settings(settings, {"bootstrap_servers": SERVERS} | keywords)


def producer(settings: Mapping[str, object] | None = None, **keywords: object) -> ProducerConfig:
    return ProducerConfig.from_settings(settings, {"bootstrap_servers": SERVERS} | keywords)


def refusal(cls: type[ClientConfig], **keywords: object) -> str:
    with pytest.raises(ConfigError) as caught:
        cls.from_settings(None, {"bootstrap_servers": SERVERS} | keywords)
    return str(caught.value)


# ---- spelling ----


def test_keywords_and_kafka_names_mean_the_same() -> None:
    by_keyword = consumer(group_id="g", max_poll_records=10, client_id="c")
    by_name = ConsumerConfig.from_settings(
        {"bootstrap.servers": SERVERS, "group.id": "g", "max.poll.records": "10", "client.id": "c"}
    )
    assert by_keyword == by_name


def test_both_at_once() -> None:
    config = ConsumerConfig.from_settings({"bootstrap.servers": SERVERS}, {"group_id": "g"})
    assert config.group_id == "g"


def test_a_topic_is_no_setting() -> None:
    with pytest.raises(ConfigError, match=r"settings are keywords or a mapping, not 'orders'"):
        ConsumerConfig.from_settings("orders", {})  # type: ignore[arg-type]


def test_the_same_setting_twice() -> None:
    with pytest.raises(ConfigError, match=r"group_id is given twice"):
        consumer({"group.id": "g"}, group_id="g")
    with pytest.raises(ConfigError, match=r"is given twice"):
        consumer({"group.id": "g", "group_id": "g"})


def test_none_means_the_default() -> None:
    assert producer(compression_type=None).compression_type == "none"
    assert consumer(group_id=None).group_id is None


def test_an_unknown_setting_names_the_nearest() -> None:
    assert refusal(ConsumerConfig, group_idd="g") == "unknown setting group_idd: did you mean group_id?"
    with pytest.raises(
        ConfigError, match=r"^unknown setting session\.timeout: did you mean session\.timeout\.ms\?$"
    ):
        consumer({"session.timeout": 1})
    assert refusal(ConsumerConfig, xyzzy=1) == "unknown setting xyzzy"


def test_a_setting_of_another_client() -> None:
    assert "acks is a setting of the producer" in refusal(ConsumerConfig, acks="all")
    assert "group_id is a setting of the consumer" in refusal(ProducerConfig, group_id="g")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max.poll.records", 0),
        ("group.idd", "g"),
        ("acks", "all"),
        ("ssl.key", "k"),
        ("bootstrap.servers", "x"),
    ],
)
def test_an_error_says_which_setting_it_is_about(setting: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.from_settings({"bootstrap.servers": SERVERS} | {setting: value})
    assert caught.value.setting == setting.replace(".", "_")


def test_a_required_setting() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers is missing"):
        ConsumerConfig.from_settings({"group.id": "g"})


# ---- values ----


@pytest.mark.parametrize(
    ("value", "read"), [(True, True), ("true", True), (" FALSE ", False), (False, False)]
)
def test_flags(value: object, read: bool) -> None:
    assert consumer(check_crcs=value).check_crcs is read


@pytest.mark.parametrize("value", ["yes", 1, 0, ""])
def test_what_is_no_flag(value: object) -> None:
    assert "must be true or false" in refusal(ConsumerConfig, check_crcs=value)


@pytest.mark.parametrize(("value", "read"), [(7, 7), ("7", 7), (" +7 ", 7)])
def test_integers(value: object, read: int) -> None:
    assert consumer(max_poll_records=value).max_poll_records == read


@pytest.mark.parametrize("value", [7.0, "7.0", "1_000", "", "seven", True, "٧", b"7"])
def test_what_is_no_integer(value: object) -> None:
    assert "must be a whole number" in refusal(ConsumerConfig, max_poll_records=value)


def test_bounds() -> None:
    assert "max_poll_records is 0: it must be at least 1" in refusal(ConsumerConfig, max_poll_records=0)
    assert "must be at most 2147483647" in refusal(ConsumerConfig, fetch_max_bytes=2**31)
    assert consumer(metadata_max_age_ms=2**31).metadata_max_age_ms == 2**31
    assert consumer(send_buffer_bytes=-1).send_buffer_bytes == -1
    assert "must be at least -1" in refusal(ConsumerConfig, send_buffer_bytes=-2)


def test_choices() -> None:
    assert producer(compression_type="zstd").compression_type == "zstd"
    assert "must be none or gzip or snappy or lz4 or zstd" in refusal(
        ProducerConfig, compression_type="brotli"
    )


@pytest.mark.parametrize(("value", "read"), [("all", -1), (-1, -1), ("-1", -1), (1, 1), ("0", 0), (0, 0)])
def test_acks(value: object, read: int) -> None:
    assert producer(acks=value).acks == read


@pytest.mark.parametrize("value", [2, "two", True, None.__class__])
def test_what_is_no_acks(value: object) -> None:
    assert "must be all, 1 or 0" in refusal(ProducerConfig, acks=value)


def test_objects_pass_through() -> None:
    def deserializer(raw: bytes) -> object:
        return raw

    config = consumer(value_deserializer=deserializer, partition_assignment_strategy=[str, "sticky"])
    assert config.value_deserializer is deserializer
    assert config.partition_assignment_strategy == (str, "sticky")


@pytest.mark.parametrize(
    ("value", "read"),
    [("range", ("range",)), ("range, sticky", ("range", "sticky")), (("a", "b"), ("a", "b")), (int, (int,))],
)
def test_assignors(value: object, read: tuple[object, ...]) -> None:
    assert consumer(partition_assignment_strategy=value).partition_assignment_strategy == read


def test_no_assignor() -> None:
    assert "name at least one assignor" in refusal(ConsumerConfig, partition_assignment_strategy=[])


# ---- addresses ----


@pytest.mark.parametrize(
    ("text", "address", "back"),
    [
        ("localhost:9092", ("localhost", 9092), "localhost:9092"),
        (" 10.0.0.1:1 ", ("10.0.0.1", 1), "10.0.0.1:1"),
        ("[::1]:9092", ("::1", 9092), "[::1]:9092"),
        ("[fe80::1%eth0]:9092", ("fe80::1%eth0", 9092), "[fe80::1%eth0]:9092"),
        ("PLAINTEXT://kafka-1.example:65535", ("kafka-1.example", 65535), "kafka-1.example:65535"),
    ],
)
def test_addresses(text: str, address: tuple[str, int], back: str) -> None:
    assert parse_address(text) == address
    assert str(parse_address(text)) == back


@pytest.mark.parametrize(
    "text",
    [
        "localhost",
        "localhost:",
        ":9092",
        "::1:9092",
        "a b:1",
        "host:0",
        "host:65536",
        "h:-1",
        "SSL://h:1",
        "",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        parse_address(text)


def test_a_listener_may_ask_for_any_port() -> None:
    assert parse_address("127.0.0.1:0", lowest_port=0) == Address("127.0.0.1", 0)


@pytest.mark.parametrize("value", ["a:1,b:2", "a:1, b:2,", ["a:1", "b:2"], ("a:1", "b:2", "a:1")])
def test_bootstrap_servers(value: object) -> None:
    assert consumer(bootstrap_servers=value).bootstrap_servers == (("a", 1), ("b", 2))


@pytest.mark.parametrize("value", ["", " , ", [], 9092, [9092], "localhost"])
def test_wrong_bootstrap_servers(value: object) -> None:
    assert refusal(ConsumerConfig, bootstrap_servers=value).startswith("bootstrap_servers")


# ---- what is not supported ----


@pytest.mark.parametrize(
    ("cls", "name", "value", "reason"),
    [
        (ConsumerConfig, "sasl_mechanism", "GSSAPI", "Kerberos (GSSAPI) is not supported yet"),
        (AdminConfig, "sasl_kerberos_service_name", "kafka", "Kerberos (GSSAPI) is not supported yet"),
        (ConsumerConfig, "interceptor_classes", "I", "not supported"),
        (ConsumerConfig, "metric_reporters", "R", "read metrics()"),
        (ConsumerConfig, "group_protocol", "consumer", "use classic"),
        (ProducerConfig, "transactional_id", "t", "transactions are not implemented yet"),
        (ProducerConfig, "transaction_timeout_ms", 1, "transactions are not implemented yet"),
        (ProducerConfig, "partitioner_class", "P", "give partition= to send()"),
        (AdminConfig, "bootstrap_controllers", "h:1", "give bootstrap_servers"),
    ],
)
def test_refused(cls: type[ClientConfig], name: str, value: object, reason: str) -> None:
    message = refusal(cls, **{name: value})
    assert message.startswith(name)
    assert reason in message


def test_harmless_settings_are_accepted() -> None:
    assert consumer({"enable.metrics.push": "false", "metrics.num.samples": 2}, client_id="c") == consumer(
        client_id="c"
    )


# ---- relations ----


def test_heartbeats_fit_into_the_session() -> None:
    message = refusal(ConsumerConfig, session_timeout_ms=3000, heartbeat_interval_ms=3000)
    assert "must be less than session_timeout_ms" in message
    assert consumer(session_timeout_ms=1500).heartbeat_interval_ms == 500
    assert consumer(session_timeout_ms=10_000).heartbeat_interval_ms == 3000


def test_groups() -> None:
    assert consumer(group_id="g").enable_auto_commit
    assert not consumer().enable_auto_commit
    assert "needs a group_id" in refusal(ConsumerConfig, enable_auto_commit=True)
    assert "needs a group_id" in refusal(ConsumerConfig, group_instance_id="i")
    assert "must not be empty" in refusal(ConsumerConfig, group_id="  ")
    assert "letters, digits" in refusal(ConsumerConfig, group_id="g", group_instance_id="a b")


@pytest.mark.parametrize(
    ("value", "duration_ms"),
    [
        ("earliest", None),
        ("none", None),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0.57S", 570),
    ],
)
def test_offset_reset(value: str, duration_ms: int | None) -> None:
    config = consumer(auto_offset_reset=value)
    assert config.auto_offset_reset == value
    assert config.auto_offset_reset_duration_ms == duration_ms


@pytest.mark.parametrize(
    "value", ["first", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1H"]
)
def test_wrong_offset_reset(value: str) -> None:
    assert "must be earliest, latest, none" in refusal(ConsumerConfig, auto_offset_reset=value)


def test_idempotence() -> None:
    assert producer().enable_idempotence
    assert not producer(acks=1).enable_idempotence
    assert not producer(retries=0).enable_idempotence
    assert "needs acks=all" in refusal(ProducerConfig, acks=1, enable_idempotence=True)
    assert "needs retries" in refusal(ProducerConfig, retries=0, enable_idempotence=True)
    assert "at most 5" in refusal(ProducerConfig, max_in_flight_requests_per_connection=6)
    assert not producer(max_in_flight_requests_per_connection=6, enable_idempotence=False).enable_idempotence


def test_delivery_timeout() -> None:
    assert producer(request_timeout_ms=200_000).delivery_timeout_ms == 200_005
    assert "at least linger_ms plus" in refusal(ProducerConfig, delivery_timeout_ms=1000)
    assert (
        producer(delivery_timeout_ms=1000, request_timeout_ms=900, linger_ms=100).delivery_timeout_ms == 1000
    )


def test_back_offs_grow_with_what_is_given() -> None:
    assert consumer(reconnect_backoff_ms=5000).reconnect_backoff_max_ms == 5000
    assert consumer(retry_backoff_ms=5000, retry_backoff_max_ms=6000).retry_backoff_max_ms == 6000


def test_clients_without_a_name_get_one_each() -> None:
    first, second = producer(), producer()
    assert first.client_id != second.client_id
    assert first.client_id.startswith("producer-")
    assert consumer(group_id="g", group_instance_id="i").client_id == "consumer-g-i"
    assert consumer(client_id="mine").client_id == "mine"


# ---- the list ----


@pytest.mark.parametrize("cls", [ConsumerConfig, ProducerConfig, AdminConfig])
def test_every_setting_is_known_by_kafkas_name(cls: type[ClientConfig]) -> None:
    config = cls.from_settings({"bootstrap.servers": SERVERS})
    given = {dotted(field.name): getattr(config, field.name) for field in fields(config)}
    assert cls.from_settings(given | {"bootstrap.servers": SERVERS}) == config


def test_kafkas_defaults() -> None:
    config = consumer()
    assert config.session_timeout_ms == 45_000
    assert config.max_poll_interval_ms == 300_000
    assert config.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert (config.receive_buffer_bytes, producer().receive_buffer_bytes) == (65_536, 32_768)
    assert AdminConfig.from_settings(None, {"bootstrap_servers": SERVERS}).connections_max_idle_ms == 300_000


# ---- the documentation ----

SETTINGS_PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def section(title: str) -> str:
    return SETTINGS_PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "cls"),
    [
        ("All clients", ClientConfig),
        ("Consumer", ConsumerConfig),
        ("Producer", ProducerConfig),
        ("Admin", AdminConfig),
    ],
)
def test_the_settings_page_is_complete(title: str, cls: type[ClientConfig]) -> None:
    base = Settings if cls is ClientConfig else ClientConfig
    assert settings_table(cls, base) in section(title)


@pytest.mark.parametrize("cls", [ConsumerConfig, ProducerConfig, AdminConfig])
def test_every_setting_is_explained(cls: type[ClientConfig]) -> None:
    assert {each.name for each in cls.declared() if each.meaning.endswith(".")} == set(cls.names())


def test_the_settings_page_lists_what_is_refused_or_without_effect() -> None:
    refused, without_effect = section("Refused"), section("Without effect")
    for cls in (ConsumerConfig, ProducerConfig, AdminConfig):
        assert all(f"`{name}`" in refused for name in cls.REFUSED)
        assert all(f"`{name}`" in without_effect for name in cls.WITHOUT_EFFECT)
