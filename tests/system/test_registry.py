"""Records by registered schemas: what is written comes back, and what a registry does wrong is said."""

from __future__ import annotations

import contextlib
import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from millstream import Consumer, Producer, TopicPartition
from millstream.errors import (
    DeserializationError,
    RegistryError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    SerializationError,
)
from millstream.registry import Reference, RegisteredSchema, RegistryClient, RegistryDeserializer
from tests.conftest import NewTopic
from tests.system.members import read
from tests.system.registry_server import RegistryServer, registry_server

CUSTOMER: dict[str, Any] = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "country", "type": "string"}],
}
CUSTOMER_2 = {**CUSTOMER, "fields": [*CUSTOMER["fields"], {"name": "city", "type": ["null", "string"]}]}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@contextlib.contextmanager
def reading(servers: str, topic: str, url: str, **settings: Any) -> Iterator[Consumer]:
    with Consumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        registry_url=url,
        **{"value_deserializer": "registry", **settings},
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        yield consumer


def writing(servers: str, url: str, **settings: Any) -> Producer:
    return Producer(
        bootstrap_servers=servers, registry_url=url, **{"value_serializer": "registry", **settings}
    )


def test_each_record_is_read_with_its_writers_schema(
    bootstrap_servers: str, new_topic: NewTopic, registry: RegistryServer
) -> None:
    topic = new_topic()
    keys = {"key_serializer": "registry", "registry_key_schema": '"long"'}
    with writing(bootstrap_servers, registry.url, registry_value_schema=CUSTOMER, **keys) as producer:
        producer.send(topic, {"id": 1, "country": "France"}, key=1)
        producer.send(topic, None, key=2)
    with writing(bootstrap_servers, registry.url, registry_value_schema=json.dumps(CUSTOMER_2)) as producer:
        for number in range(3, 23):
            producer.send(topic, {"id": number, "country": "Peru", "city": "Lima"})
    assert registry.subjects == {f"{topic}-key": [1], f"{topic}-value": [2, 3]}
    registry.asked.clear()
    with reading(bootstrap_servers, topic, registry.url, key_deserializer="registry") as consumer:
        records = read(consumer, 22)
    assert [(record.key, record.value) for record in records[:3]] == [
        (1, {"id": 1, "country": "France"}),
        (2, None),
        (None, {"id": 3, "country": "Peru", "city": "Lima"}),
    ]
    assert sorted(path for _, path, _ in registry.asked) == [f"/schemas/ids/{number}" for number in (1, 2, 3)]


def test_latest_lookup_and_subjects(
    bootstrap_servers: str, new_topic: NewTopic, registry: RegistryServer
) -> None:
    topic = new_topic()
    value = {"id": 1, "country": "France"}
    with (
        writing(bootstrap_servers, registry.url, use_latest_version=True) as producer,
        pytest.raises(SerializationError, match=f"{topic}-value does not have the schema"),
    ):
        producer.send(topic, value)
    settings = {"registry_value_schema": CUSTOMER, "auto_register_schemas": False}
    with writing(bootstrap_servers, registry.url, **settings) as producer:
        with pytest.raises(SerializationError, match="or set auto_register_schemas"):
            producer.send(topic, value)
        registry.register(f"{topic}-value", {"schema": json.dumps(CUSTOMER)})
        producer.send(topic, value).result()
    with writing(bootstrap_servers, registry.url, use_latest_version=True) as producer:
        producer.send(topic, value).result()
        with pytest.raises(SerializationError, match="cannot be serialized"):
            producer.send(topic, {"id": "one"})
    for strategy in ("record", "topic-record"):
        settings = {"registry_value_schema": CUSTOMER, "value_subject_name_strategy": strategy}
        with writing(bootstrap_servers, registry.url, normalize_schemas=True, **settings) as producer:
            producer.send(topic, value).result()
    assert set(registry.subjects) == {f"{topic}-value", "shop.Customer", f"{topic}-shop.Customer"}
    assert ("POST", "/subjects/shop.Customer/versions?normalize=true", "") in registry.asked
    with reading(bootstrap_servers, topic, registry.url) as consumer:
        assert [record.value for record in read(consumer, 4)] == [value] * 4


def test_references_guids_json_and_bytes(registry: RegistryServer) -> None:
    country = {"type": "record", "name": "geo.Country", "fields": [{"name": "code", "type": "string"}]}
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "to", "type": "geo.Country"}, {"name": "from", "type": "geo.Country"}],
    }
    client = RegistryClient({"registry.url": registry.url})
    client.register("country", RegisteredSchema(json.dumps(country)))
    union = RegisteredSchema(
        json.dumps(["geo.Country"]), references=(Reference("geo.Country", "country", 1),)
    )
    used = RegisteredSchema(json.dumps(order), references=(Reference("geo.Country", "country", 1),))
    order_id, union_id = client.register("order", used), client.register("union", union)
    deserializer = RegistryDeserializer(client)
    assert deserializer.deserialize("any", [], b"\x00\x00\x00\x00%c\x04FR\x04PE" % order_id) == {
        "to": {"code": "FR"},
        "from": {"code": "PE"},
    }
    assert deserializer.deserialize("any", [], b"\x00\x00\x00\x00%c\x00\x04FR" % union_id) == {"code": "FR"}
    guid = uuid.UUID(client.by_id(order_id).guid)
    headers = [("__value_schema_id", b"\x01" + guid.bytes)]
    assert deserializer.deserialize("any", headers, b"\x04FR\x04PE")["to"] == {"code": "FR"}
    json_id = client.register("json", RegisteredSchema('{"type": "object"}', "JSON"))
    assert deserializer.deserialize("any", [], b'\x00\x00\x00\x00%c{"n":1}' % json_id) == {"n": 1}
    bytes_id = client.register("bytes", RegisteredSchema('"bytes"'))
    assert deserializer.deserialize("any", [], b"\x00\x00\x00\x00%cas it is" % bytes_id) == b"as it is"
    protobuf_id = client.register("protobuf", RegisteredSchema('syntax = "proto3";', "PROTOBUF"))
    with pytest.raises(ValueError, match="Protobuf, which is not supported yet"):
        deserializer.deserialize("any", [], b"\x00\x00\x00\x00%c\x00" % protobuf_id)
    assert client.latest("order") == client.by_version("order", 1) == client.lookup("order", used)
    assert client.compatibility("order") == "BACKWARD"
    with pytest.raises(SchemaNotFoundError) as raised:
        client.by_id(99)
    assert (raised.value.status, raised.value.error_code) == (404, 40403)


def test_bad_records_have_their_place(
    bootstrap_servers: str, new_topic: NewTopic, registry: RegistryServer, producer: Producer
) -> None:
    topic = new_topic()
    registry.register("any", {"schema": json.dumps(CUSTOMER)})
    for value in (b"\x00\x00\x00\x00\x01\x02\x04FR", b"\x00\x00\x00\x00\x63\x02", b"{}"):
        producer.send(topic, value).result()
    with reading(bootstrap_servers, topic, registry.url) as consumer:
        assert read(consumer, 1)[0].value == {"id": 1, "country": "FR"}
        for offset, message in ((1, "unknown id 99"), (2, "without a schema registry")):
            with pytest.raises(DeserializationError, match=message) as raised:
                read(consumer, 1)
            found = raised.value
            assert (found.topic, found.partition, found.offset) == (topic, 0, offset)
            consumer.seek(TopicPartition(topic, 0), offset + 1)


def test_a_registry_that_is_down_is_waited_for(
    bootstrap_servers: str, new_topic: NewTopic, registry: RegistryServer
) -> None:
    topic = new_topic()
    with writing(bootstrap_servers, registry.url, registry_value_schema=CUSTOMER) as producer:
        producer.send(topic, {"id": 1, "country": "France"}).result()
    with reading(bootstrap_servers, topic, registry.url, registry_timeout_ms=2_000) as consumer:
        registry.instead.extend([(503, b"")] * 4)
        with pytest.raises(RegistryUnavailableError, match="HTTP 503") as raised:
            read(consumer, 1)
        assert raised.value.retriable
        assert consumer.position(TopicPartition(topic, 0)) == 0
        assert read(consumer, 1)[0].value == {"id": 1, "country": "France"}
    with (
        writing(bootstrap_servers, _refusing(), registry_value_schema=CUSTOMER) as producer,
        pytest.raises(RegistryUnavailableError, match="refused"),
    ):
        producer.send(topic, {"id": 1, "country": "France"})


def _refusing() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_another_address_and_a_passing_failure(registry: RegistryServer) -> None:
    registry.register("any", {"schema": '"string"'})
    client = RegistryClient(registry_url=f"{_refusing()},{registry.url}")
    registry.instead.append((500, b'{"error_code": 50001, "message": "store"}'))
    assert client.by_id(1).text == '"string"'
    assert len(registry.asked) == 2


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        ({"registry_basic_auth_user_info": "ann:${env:REGISTRY_SECRET}"}, "Basic YW5uOnMzY3JldA=="),
        ({"registry_bearer_auth_token": "${env:REGISTRY_SECRET}"}, "Bearer s3cret"),
    ],
)
def test_logins_and_secrets(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], header: str
) -> None:
    monkeypatch.setenv("REGISTRY_SECRET", "s3cret")
    client = RegistryClient(registry_url=registry.url, **settings)
    assert client.subjects() == []
    assert registry.asked[-1][2] == header
    registry.instead.append((401, b"s3cret"))
    with pytest.raises(RegistryError, match="login is not accepted") as raised:
        client.subjects()
    assert raised.value.status == 401 and not raised.value.retriable
    registry.instead.append((422, json.dumps({"error_code": 42201, "message": f"got {header}"}).encode()))
    with pytest.raises(RegistryError, match="HTTP 422") as raised:
        client.subjects()
    assert not any(secret in str(raised.value) for secret in ("s3cret", header.split()[1]))
    registry.instead.append((401, b""))
    with pytest.raises(RegistryError, match="requires a login: set registry_basic_auth_user_info"):
        RegistryClient(registry_url=registry.url).subjects()


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b"{}", b'{"schema": 1}', b'{"schema": "", "references": [1]}', b"[" * 10_000]
)
def test_answers_that_are_none(registry: RegistryServer, answer: bytes) -> None:
    registry.instead.append((200, answer))
    with pytest.raises(RegistryError, match="check"):
        RegistryClient(registry_url=registry.url).by_id(1)


def test_an_answer_that_is_too_large(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.registry.http._MAX_BYTES", 1 << 20)
    registry.instead.append((200, b" " * (2 << 20)))
    with pytest.raises(RegistryError, match="more than 1048576 bytes"):
        RegistryClient(registry_url=registry.url).by_id(1)


def test_a_redirect_is_not_followed(registry: RegistryServer) -> None:
    registry.instead.append((302, b""))
    with pytest.raises(RegistryError, match="HTTP 302"):
        RegistryClient(registry_url=registry.url).subjects()
    assert len(registry.asked) == 1


def test_schemas_are_remembered_up_to_a_limit(registry: RegistryServer) -> None:
    for name in "abc":
        registry.register(name, {"schema": json.dumps({"type": "fixed", "name": name, "size": 1})})
    client = RegistryClient(registry_url=registry.url, registry_max_schemas=2)
    for schema_id in (1, 2, 1, 2, 3, 1):
        assert json.loads(client.by_id(schema_id).text)["size"] == 1
    assert [path.rpartition("/")[2] for _, path, _ in registry.asked] == ["1", "2", "3", "1"]
