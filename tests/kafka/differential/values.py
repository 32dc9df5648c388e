"""Requests made of plain data, and replies turned into it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from millstream.wire.apis import all_apis
from millstream.wire.consumer_protocol import ConsumerProtocolSubscription
from millstream.wire.fields import Field
from millstream.wire.records.batch_header import iter_headers
from millstream.wire.records.batches import RecordData, decode_batch, encode_batch
from millstream.wire.records.codecs import Codec
from millstream.wire.schema import Api, Request, Struct
from tests.kafka.differential.names import Names

API_BY_NAME: Final = {api.name: api for api in all_apis().values()}
TIMESTAMP_MS: Final = 1_700_000_000_000
NO_TIME: Final = -1
_LOG_APPEND_TIME: Final = 0x08
_YEAR_MS: Final = 365 * 86_400_000

Plain = Any
"""What JSON can hold."""


@dataclass(frozen=True)
class Step:
    """One request: ``on`` names the connection, ``alias`` what to call the thing that the reply creates.

    ``after`` is how many seconds to wait first, for what time alone brings about.
    """

    api: str
    version: int
    fields: Mapping[str, Plain]
    on: str = "main"
    alias: str = ""
    group: str = ""
    after: float = 0.0

    @property
    def of(self) -> Api:
        return API_BY_NAME[self.api]

    def __str__(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if value not in ("", 0.0)})

    @staticmethod
    def parse(line: str) -> Step:
        return Step(**json.loads(line))


# --- requests


def request_of(step: Step, names: Names) -> Request:
    """The request of a step, with the names that this broker chose."""
    request = _struct(step.of.request_type, step.fields, step.version, names)
    assert isinstance(request, Request)
    return request


def _struct(of: type[Struct], fields: Mapping[str, Plain], version: int, names: Names) -> Struct:
    unknown = fields.keys() - {each.name for each in of.__fields__}
    assert not unknown, f"{of.__name__} has no {unknown}"
    present = [each for each in of.__fields__ if each.name in fields and each.present(version)]
    values = {each.name: _value(each, fields[each.name], version, names) for each in present}
    for each in of.__fields__:  # a field that this version lacks is not sent, whatever it is
        if each.required and each.name not in values:
            values[each.name] = each.default
    return of(**values)


def _value(of: Field, value: Plain, version: int, names: Names) -> Any:
    if value is None:
        return None
    if of.kind == "array":
        assert of.element is not None
        elements = names.everyone(value) if isinstance(value, str) else value
        return [_value(of.element, each, version, names) for each in elements]
    if of.kind == "struct":
        assert of.struct_type is not None
        return _struct(of.struct_type, value, version, names)
    if of.kind == "records":
        return b"".join(_batch(each, names) for each in value)
    if of.kind == "bytes":
        return _bytes(value, names)
    return names.resolve(value)


def _bytes(text: str, names: Names) -> bytes:
    """``topics:~a,~b`` is a subscription to them; anything else is itself."""
    if text.startswith("topics:"):
        topics = [names.resolve(each) for each in text.removeprefix("topics:").split(",")]
        return b"\0\1" + ConsumerProtocolSubscription(topics=topics).encode(1)
    return text.encode()


def _batch(spec: Mapping[str, Plain], names: Names) -> bytes:
    """A batch: its values, and optionally codec, first timestamp, producer, epoch, sequence and damage."""
    first_ms = spec.get("timestamp", TIMESTAMP_MS)
    records = [
        RecordData(number, first_ms + number, None, value.encode())
        for number, value in enumerate(spec["values"])
    ]
    made = bytearray(
        encode_batch(
            records,
            codec=Codec[spec.get("codec", "NONE")],
            producer_id=names.resolve(spec.get("producer", -1)),
            producer_epoch=spec.get("epoch", -1),
            base_sequence=spec.get("sequence", -1),
            transactional=spec.get("transactional", False),
            control=spec.get("control", False),
        )
    )
    for position, value in spec.get("damage", ()):
        made[position] = value
    return bytes(made)


# --- replies


def plain(value: Any, names: Names) -> Plain:
    """A reply as plain data, with what two brokers cannot have in common replaced by its alias."""
    if isinstance(value, Struct):
        return {each.name: _plain_field(each, getattr(value, each.name), names) for each in value.__fields__}
    if isinstance(value, list):
        # The order of topics, partitions and members is up to a broker's hash tables.
        return sorted(
            (plain(each, names) for each in value), key=lambda each: json.dumps(each, sort_keys=True)
        )
    if isinstance(value, str):
        return names.alias_of(value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value


def _plain_field(of: Field, value: Any, names: Names) -> Plain:
    if of.name in ("throttle_time_ms", "cluster_id"):
        return 0
    if of.name in ("error_message", "batch_index_error_message"):
        return None  # everybody has words of their own
    if of.name == "log_append_time_ms":
        return "now" if value > TIMESTAMP_MS + _YEAR_MS else value
    if of.kind == "uuid":
        return names.alias_of_topic(bytes(value))
    if of.kind == "records":
        return _plain_records(bytes(value or b""), names)
    if of.name == "configs" and value is not None:
        return {each.name: plain(each, names) for each in value}
    if of.name in _NUMBERS:
        return names.alias_of_number(_NUMBERS[of.name], value)
    return plain(value, names)


_NUMBERS: Final = {"session_id": "session", "producer_id": "producer", "port": "port"}


def _plain_records(data: bytes, names: Names) -> Plain:
    """Batches header by header, and record by record. An incomplete last one is as good as none."""
    batches = []
    for position, header in iter_headers(data, allow_partial=True):
        if position + header.size > len(data):
            break
        records = decode_batch(data[position : position + header.size], max_decompressed_bytes=1 << 24)
        is_append_time = bool(header.attributes & _LOG_APPEND_TIME)
        batches.append(
            {
                "base_offset": header.base_offset,
                "leader_epoch": header.partition_leader_epoch,
                "attributes": header.attributes,
                "last_offset_delta": header.last_offset_delta,
                "max_timestamp": "now" if is_append_time else header.max_timestamp,
                "producer": names.alias_of_number("producer", header.producer_id),
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "records": [
                    [
                        each.offset,
                        "now" if is_append_time else each.timestamp,
                        repr(each.key),
                        repr(each.value),
                    ]
                    for each in records
                ],
            }
        )
    return batches
