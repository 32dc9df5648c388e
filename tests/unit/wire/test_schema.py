"""Declarations and what is compiled from them: defaults, nulls, tags, versions, errors that name a field."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, settings

from millstream.errors import MisuseError, UnsupportedVersionError
from millstream.wire import decoders, encoders
from millstream.wire.decoders import minimum_size
from millstream.wire.faults import EncodeError
from millstream.wire.fields import parse_versions
from millstream.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from millstream.wire.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from millstream.wire.messages.groups import FindCoordinatorRequest, HeartbeatRequest
from millstream.wire.messages.metadata import Cursor, DescribeTopicPartitionsRequest, MetadataRequest
from millstream.wire.messages.metadata import MetadataRequestTopic as Topic
from millstream.wire.schema import (
    ZERO_UUID,
    Data,
    Struct,
    array,
    boolean,
    data,
    float64,
    int8,
    int16,
    int32,
    int64,
    nested,
    records,
    string,
    uint16,
    uuid,
)
from tests.unit.wire.message_values import carried, instances


class Inner(Struct):
    number: int = int32(default=-1)
    word: str = string("1+", default="")


class Everything(Data, versions=(0, 2), flexible=1):
    """One field of every type, each of them also as the element of an array where that is allowed."""

    flag: bool = boolean()
    tiny: int = int8()
    short: int = int16()
    port: int = uint16()
    medium: int = int32()
    long: int = int64()
    real: float = float64()
    ident: bytes = uuid()
    text: str = string()
    maybe_text: str | None = string(nullable="0+")
    blob: bytes = data()
    maybe_blob: bytes | None = data(nullable="1+")
    batch: Any = records(nullable="0+")
    inner: Inner = nested(Inner)
    maybe_inner: Inner | None = nested(Inner, nullable="1+")
    flags: list[bool] = array(boolean())
    reals: list[float] = array(float64())
    numbers: list[int] | None = array(int64(), nullable="2+")
    idents: list[bytes] = array(uuid())
    texts: list[str] = array(string())
    blobs: list[bytes] = array(data())
    inners: list[Inner] | None = array(Inner, nullable="0-1")
    tagged_inner: Inner | None = nested(Inner, "1+", tag=3, default=None)
    tagged_inners: list[Inner] = array(Inner, "1+", tag=1, default=[])
    tagged_text: str | None = string("2+", nullable="2+", tag=0, default=None)
    tagged_real: float = float64("1+", tag=2, default=1.5)


@settings(max_examples=60, deadline=None, database=None)
@given(instances(Everything))
def test_everything_comes_back(anything: Everything) -> None:
    for version in range(3):
        item = carried(anything, version)
        if item.inner is None:
            item.inner = Inner()
        if item.maybe_inner is None and version == 0:
            item.maybe_inner = Inner()
        encoded = item.encode(version)
        found, end = Everything.decode_from(memoryview(b"before" + encoded + b"after"), 6, version)
        assert found == item
        assert end == 6 + len(encoded)


# --------------------------------------------------------------------------------------------- instances


def test_fields_without_default_must_be_given() -> None:
    with pytest.raises(
        TypeError, match=r"Topic.__init__\(\) missing 1 required keyword-only argument: 'name'"
    ):
        Topic()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'nmae'"):
        Topic(nmae="t")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Topic(name="t").nmae = "u"  # type: ignore[attr-defined]


def test_list_defaults_are_not_shared() -> None:
    first, second = OffsetFetchRequest(), OffsetFetchRequest()
    first.groups.append(None)  # type: ignore[arg-type]
    assert second.groups == []
    one, two = (OffsetFetchRequest.decode(b"\x01\x00\x00", 9) for _ in range(2))
    assert one.topics is not two.topics


def test_equality_and_text() -> None:
    assert Topic(name="t") == Topic(name="t", topic_id=ZERO_UUID) != Topic(name="u")
    assert Topic(name="t") != Cursor(topic_name="t", partition_index=0)
    assert repr(Cursor(topic_name="t", partition_index=3)) == "Cursor(topic_name='t', partition_index=3)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Topic(name="t"))


def test_instances_can_be_copied_and_pickled() -> None:
    request = MetadataRequest(topics=[Topic(name="t")])
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_version_ranges() -> None:
    assert parse_versions("3+") == (3, 0x7FFF)
    assert parse_versions("2-4") == (2, 4)
    assert parse_versions("7") == (7, 7)


# ------------------------------------------------------------------------------------------ null and tags


def test_a_nullable_struct() -> None:
    request = DescribeTopicPartitionsRequest(topics=[], cursor=None)
    assert request.encode(0).hex() == "01" + "000007d0" + "ff" + "00"
    request.cursor = Cursor(topic_name="t", partition_index=1)
    assert request.encode(0).hex() == "01" + "000007d0" + "01" + "0274" + "00000001" + "00" + "00"


def fetch_request(**values: Any) -> FetchRequest:
    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], **values)


def test_tagged_fields_with_their_default_are_not_written() -> None:
    assert fetch_request().encode(12).endswith(b"\x01\x01\x01\x00")
    assert fetch_request(cluster_id="c").encode(12).endswith(b"\x01\x01\x01\x01\x00\x02\x02c")
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=0, aborted_transactions=None, records=None
    )
    assert fetch_partition_tags(partition) == b"\x00"
    partition.diverging_epoch = EpochEndOffset()
    assert fetch_partition_tags(partition) == b"\x00", "a struct of nothing but defaults says nothing"
    partition.diverging_epoch = EpochEndOffset(epoch=2)
    assert fetch_partition_tags(partition) == b"\x01\x00\x0d" + bytes.fromhex("00000002ffffffffffffffff00")


def fetch_partition_tags(partition: PartitionData) -> bytes:
    class OnePartition(Data, versions=(17, 17), flexible=12):
        partition: PartitionData = nested(PartitionData)

    encoded = OnePartition(partition=partition).encode(17)
    return encoded[4 + 2 + 8 + 8 + 8 + 1 + 4 + 1 : -1]


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    class Two(Data, versions=(0, 0), flexible=0):
        later: int = int8(tag=7, default=0)
        sooner: int = int8(tag=2, default=0)

    assert Two(later=1, sooner=2).encode(0) == b"\x02" + b"\x02\x01\x02" + b"\x07\x01\x01"
    assert Two.decode(b"\x02" + b"\x07\x01\x01" + b"\x02\x01\x02", 0) == Two(later=1, sooner=2)


def test_a_long_tagged_field() -> None:
    request = fetch_request(cluster_id="c" * 300)
    assert request.encode(12).endswith(b"\x01\x00" + b"\xae\x02" + b"\xad\x02" + b"c" * 300)
    assert FetchRequest.decode(request.encode(12), 12) == request


def test_the_least_size_of_elements() -> None:
    def least(of: type[Struct], version: int, flexible: bool) -> int:
        return minimum_size(nested(of), version, flexible)

    assert least(Topic, 0, False) == 2
    assert least(Topic, 9, True) == 2
    assert least(Topic, 10, True) == 18
    assert least(FetchPartition, 4, False) == 16
    assert least(Everything, 1, True) == len(least_everything().encode(1))


def least_everything() -> Everything:
    fixed = {"flag": False, "tiny": 0, "short": 0, "port": 0, "medium": 0, "long": 0, "real": 0.0}
    empty: dict[str, Any] = {"text": "", "maybe_text": "", "blob": b"", "maybe_blob": b"", "batch": None}
    lists: dict[str, Any] = {
        name: [] for name in ("flags", "reals", "numbers", "idents", "texts", "blobs", "inners")
    }
    values: dict[str, Any] = {**fixed, **empty, **lists, "ident": ZERO_UUID, "inner": Inner()}
    return Everything(**values, maybe_inner=None)


# ----------------------------------------------------------------------------------- what a version lacks


def test_what_a_version_lacks_is_left_out_and_reads_as_its_default() -> None:
    partition = FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3, current_leader_epoch=9)
    request = fetch_request(rack_id="r")
    request.topics = [FetchTopic(topic="t", topic_id=b"0123456789abcdef", partitions=[partition])]
    old = FetchRequest.decode(request.encode(4), 4)
    assert old.rack_id == ""
    assert old.topics[0].topic_id == ZERO_UUID
    assert old.topics[0].partitions[0].current_leader_epoch == -1


@pytest.mark.parametrize(
    ("request_", "version", "field"),
    [
        (FindCoordinatorRequest(coordinator_keys=["g"]), 3, "coordinator_keys"),
        (FindCoordinatorRequest(key="g"), 4, "key"),
        (OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t")]), 8, "topics"),
        (OffsetFetchRequest(topics=None), 8, "topics"),
        (OffsetFetchRequest(group_id="g", require_stable=True), 6, "require_stable"),
        (
            HeartbeatRequest(group_id="g", generation_id=1, member_id="", group_instance_id="i"),
            2,
            "group_instance_id",
        ),
        (MetadataRequest(topics=[], allow_auto_topic_creation=False), 3, "allow_auto_topic_creation"),
    ],
)
def test_a_request_is_not_sent_without_a_part_of_its_meaning(request_: Any, version: int, field: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"too old for {field}: version {version}"):
        request_.encode(version)


def test_versions_that_do_not_exist() -> None:
    with pytest.raises(UnsupportedVersionError, match="MetadataRequest has versions 0 to 13, but not 14"):
        MetadataRequest(topics=None).encode(14)
    with pytest.raises(UnsupportedVersionError, match="but not -1"):
        MetadataRequest.decode(b"", -1)


# -------------------------------------------------------------------------------- values that do not fit


def bad_partition(**values: Any) -> FetchRequest:
    good = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=0)
    bad = FetchPartition(**{"partition": 1, "fetch_offset": 0, "partition_max_bytes": 0} | values)
    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[good, bad])])


@pytest.mark.parametrize(
    ("message", "version", "complaint"),
    [
        (
            MetadataRequest(topics=[Topic(name="x" * 40_000)]),
            1,
            r"topics\[0\].name has 40000 bytes: at most 32767",
        ),
        (
            MetadataRequest(topics=[Topic(name="x" * 40_000)]),
            9,
            r"topics\[0\].name has 40000 bytes: at most 32767",
        ),
        (MetadataRequest(topics=[Topic(name="é" * 20_000)]), 9, r"topics\[0\].name has 40000 bytes"),
        (MetadataRequest(topics=[Topic(name=None)]), 9, r"topics\[0\].name is missing"),
        (MetadataRequest(topics=[Topic(name=5)]), 9, r"topics\[0\].name is 5, not a string"),  # type: ignore[arg-type]
        (
            MetadataRequest(topics=[Topic(name="\ud800")]),
            9,
            r"topics\[0\].name is '\\ud800', which UTF-8 cannot encode",
        ),
        (MetadataRequest(topics=None), 0, "topics is missing, and cannot be null in this version"),
        (MetadataRequest(topics=5), 9, "topics is 5, not a list"),  # type: ignore[arg-type]
        (MetadataRequest(topics=["t"]), 9, r"topics\[0\] is 't', not MetadataRequestTopic"),  # type: ignore[list-item]
        (
            MetadataRequest(topics=[Topic(name="t", topic_id=b"short")]),
            10,
            r"topics\[0\].topic_id is b'short', not 16",
        ),
        (
            bad_partition(partition=2**31),
            12,
            r"topics\[0\].partitions\[1\].partition is 2147483648, .* not fit int32",
        ),
        (bad_partition(fetch_offset=None), 12, r"partitions\[1\].fetch_offset is missing"),
        (
            bad_partition(fetch_offset="7"),
            4,
            r"partitions\[1\].fetch_offset is '7', which does not fit int64",
        ),
        (
            bad_partition(fetch_offset=1.5),
            4,
            r"partitions\[1\].fetch_offset is 1.5, which does not fit int64",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_named(message: Any, version: int, complaint: str) -> None:
    name = type(message).__name__
    with pytest.raises(EncodeError, match=f"^{name} version {version}: .*{complaint}") as caught:
        message.encode(version)
    assert isinstance(caught.value, MisuseError | ValueError)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("flags", None, "flags is missing"),
        ("blob", "text", "blob is 'text', not bytes"),
        ("blob", 7, "blob is 7, not bytes"),
        ("batch", 7, "batch is 7, not records"),
        ("inner", None, "inner is missing"),
        ("inner", 7, "inner is 7, not Inner"),
        ("inner", Inner(number=2**40), "inner.number is 1099511627776, which does not fit int32"),
        ("numbers", [1, 2**63], r"numbers\[1\] is 9223372036854775808, which does not fit int64"),
        ("numbers", [None] * 20, r"numbers\[0\] is missing"),
        ("idents", [ZERO_UUID, b"x" * 17], r"idents\[1\] is b'x+', not 16 bytes"),
        ("texts", ["t", None], r"texts\[1\] is missing"),
        ("port", -1, "port is -1, which does not fit uint16"),
        ("real", "x", "real is 'x', which does not fit float64"),
        ("tagged_inner", Inner(number=2**31), "tagged_inner.number is 2147483648"),
        ("tagged_inners", None, "tagged_inners is missing"),
        (
            "maybe_blob",
            ["a list that is far too long to be shown in whole"] * 3,
            r"maybe_blob is \['a list .*\.\.\., not bytes",
        ),
    ],
)
def test_every_type_names_what_does_not_fit(field: str, value: Any, complaint: str) -> None:
    item = least_everything()
    setattr(item, field, value)
    for version in (1, 2):
        with pytest.raises(EncodeError, match=complaint):
            item.encode(version)


def test_a_field_that_was_deleted_is_missing() -> None:
    request = MetadataRequest(topics=None)
    del request.topics
    with pytest.raises(EncodeError, match="topics is missing"):
        request.encode(1)


# --------------------------------------------------------------------------------------- generated code


def test_generated_code_can_be_read() -> None:
    assert "o1 = new(FetchTopic)" in decoders.write(FetchRequest, 12, flexible=True).text
    assert "for o1 in v:" in encoders.write(FetchRequest, 12, flexible=True).text


def test_code_is_compiled_once_per_version() -> None:
    MetadataRequest(topics=None).encode(5)
    first = MetadataRequest.encoders[5]
    MetadataRequest(topics=None).encode(5)
    assert MetadataRequest.encoders[5] is first
