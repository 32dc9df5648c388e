"""The options of the source: Spark's names and rules, and errors that say what to do. No Spark here."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from millstream import TopicPartition
from millstream.errors import ConfigError, DataLostError
from millstream.spark.planning.offsets import StreamOffset
from millstream.spark.source.options import NAMES, SourceOptions, read_options
from millstream.spark.source.source import MillstreamSource
from millstream.spark.source.values import NamedOffset, SpecificOffsets, SpecificTimestamps

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(**options: str) -> SourceOptions:
    return read_options({**SERVERS, "subscribe": "t", **options}, streaming=False)


def stream(**options: str) -> SourceOptions:
    return read_options({**SERVERS, "subscribe": "t", **options}, streaming=True)


def refused(given: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        read_options({**SERVERS, "subscribe": "t", **given}, streaming=streaming)
    return str(caught.value)


def test_defaults_are_those_of_sparks_source() -> None:
    assert batch().starting is NamedOffset.EARLIEST and batch().ending is NamedOffset.LATEST
    assert stream().starting is NamedOffset.LATEST
    assert batch().fail_on_data_loss and not batch().include_headers
    assert batch().max_records_per_partition is None and batch().min_partitions is None


@pytest.mark.parametrize("name", ["subscribe", "SUBSCRIBE", "Subscribe"])
def test_names_are_read_without_their_case(name: str) -> None:
    assert read_options({**SERVERS, name: "a, b,a"}, streaming=False).topics == ("a", "b")


def test_topics_by_pattern_and_by_partition() -> None:
    by_pattern = read_options({**SERVERS, "subscribePattern": "a.*"}, streaming=False)
    assert by_pattern.accepts("abc") and by_pattern.accepts("xabc") and not by_pattern.accepts("xyz")
    whole = read_options({**SERVERS, "subscribePattern": "^a.*$"}, streaming=False)
    assert whole.accepts("abc") and not whole.accepts("xabc")
    assigned = read_options({**SERVERS, "assign": '{"t": [1, 0, 1]}'}, streaming=False)
    assert assigned.partitions == (T0, T1) and assigned.names == ("t",)


def test_where_to_start_and_end() -> None:
    assert batch(startingOffsets='{"t": {"0": 5, "1": -2}}').starting == SpecificOffsets(
        {T0: 5, T1: -2}, "startingOffsets"
    )
    assert stream(startingOffsets="Earliest").starting is NamedOffset.EARLIEST
    assert batch(endingOffsets='{"t": {"0": -1}}').ending == SpecificOffsets({T0: -1}, "endingOffsets")
    assert batch(endingOffsets="latest").ending is NamedOffset.LATEST


def test_one_time_comes_before_many_and_times_before_offsets() -> None:
    times = '{"t": {"0": 1000}}'
    many = batch(startingOffsetsByTimestamp=times, startingOffsets="earliest")
    assert many.starting == SpecificTimestamps({T0: 1000}, "startingOffsetsByTimestamp", or_latest=False)
    one = batch(startingTimestamp="5", startingOffsetsByTimestamp=times)
    assert one.starting == SpecificTimestamps(5, "startingTimestamp", or_latest=False)
    lenient = batch(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest")
    assert lenient.starting == SpecificTimestamps(5, "startingTimestamp", or_latest=True)
    # Where nothing is that young, a batch simply ends at the end.
    assert batch(endingTimestamp="5").ending == SpecificTimestamps(5, "endingTimestamp", or_latest=True)


def test_committed_needs_a_group() -> None:
    found = batch(startingOffsets="committed", **{"kafka.group.id": "g"})
    assert (
        found.starting is NamedOffset.COMMITTED and found.group_id == "g" and "group.id" not in found.settings
    )
    assert "kafka.group.id" in refused({"startingOffsets": "committed"})
    assert "kafka.group.id" in refused({"commitOffsets": "true"}, streaming=True)


def test_kafkas_settings_are_passed_on_and_checked() -> None:
    found = batch(**{"kafka.isolation.level": "read_committed", "groupIdPrefix": "job"})
    assert found.settings == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_committed",
    }
    assert "fetch.max.bytes" in refused({"kafka.fetch.max.byte": "1"})
    assert "startingOffsets" in refused({"kafka.auto.offset.reset": "latest"})
    assert "kafka.enable.auto.commit" in refused({"kafka.enable.auto.commit": "true"})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscibe", "subscribe"),
        ("failOnDataloss2", "failOnDataLoss"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("group.id", "kafka.group.id"),
    ],
)
def test_a_likely_slip_names_the_nearest(name: str, nearest: str) -> None:
    message = refused({name: "x"})
    assert f"unknown option {name}" in message and nearest in message


def test_what_others_know_is_ignored_and_named() -> None:
    given = {
        "someOptionOfAJob": "x",
        "checkpointLocation": "s3://here",
        "topic": "t",
        "maxOffsetsPerTrigger": "5",
        "kafka.acks": "all",
        "kafka.max.poll.records": "10",
        "kafka.group.instance.id": "one",
        "kafka.metric.reporters": "com.example.Reporter",
        "kafka.com.example.setting": "x",
    }
    found = batch(**given)
    assert found.ignored == (
        "someOptionOfAJob",
        "maxOffsetsPerTrigger",
        "kafka.acks",
        "kafka.max.poll.records",
        "kafka.group.instance.id",
        "kafka.metric.reporters",
        "kafka.com.example.setting",
    )
    assert found.settings == {"bootstrap.servers": "localhost:9092"}
    assert "maxOffsetsPerTrigger" not in stream(**given).ignored


def test_a_setting_that_safety_depends_on_is_never_ignored() -> None:
    assert "Kerberos" in refused({"kafka.sasl.kerberos.service.name": "kafka"})
    assert "ssl.keystore.lokation" in refused({"kafka.ssl.keystore.lokation": "x"})


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "one of subscribe, subscribePattern and assign"),
        ({"subscribe": "t", "subscribePattern": "t.*"}, "subscribe and subscribePattern"),
        ({"subscribe": " , "}, "at least one topic"),
        ({"subscribePattern": " "}, "must not be empty"),
        ({"assign": "{}"}, "must name a partition"),
        ({"subscribe": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "must not exceed"),
        ({"subscribe": "t", "kafka.interceptor.classes": "x"}, "cannot be set"),
        ({"subscribe": "t", "commitOffsets": "true", "startingOffsets": "committed"}, "kafka.group.id"),
        ({"subscribe": "t", "startingOffsets": "latest", "endingOffsets": "latest"}, "batch"),
        (
            {"subscribe": "t", "startingOffsets": '{"t": {"0": 1}}', "endingOffsets": '{"t": {"1": 2}}'},
            "must name the same partitions",
        ),
        (
            {"subscribe": "t", "startingOffsets": '{"t": {"0": 3}}', "endingOffsets": '{"t": {"0": 2}}'},
            "t-0 ends at 2, before startingOffsets 3",
        ),
    ],
)
def test_what_is_wrong_in_itself_is_refused_at_load(given: dict[str, str], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        MillstreamSource({**SERVERS, **given}).schema()


@pytest.mark.parametrize("given", [{"startingOffsets": "latest"}, {"endingOffsets": "latest"}])
def test_what_only_a_batch_or_only_a_stream_refuses_can_be_loaded(given: dict[str, str]) -> None:
    assert "offset BIGINT" in MillstreamSource({**SERVERS, "subscribe": "t", **given}).schema()


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"startingOffsets": "latest"}, "batch"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "batch"),
        ({"startingOffsets": "first"}, "earliest, latest, committed"),
        ({"startingOffsets": '{"t": 5}'}, "each partition"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "at least -2"),
        ({"startingOffsets": '{"t": {"x": 3}}'}, "whole numbers"),
        ({"startingOffsets": "{"}, "JSON"),
        ({"startingOffsets": "{}"}, "must name a partition"),
        ({"endingOffsets": "earliest"}, "latest or JSON"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "at least -1"),
        ({"startingTimestamp": "now"}, "whole number"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"maxRecordsPerPartition": "-4"}, "at least 1"),
        ({"maxTriggerDelay": "soon"}, "15m"),
        ({"subscribePattern": "a"}, "subscribe and subscribePattern"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "must not exceed"),
    ],
)
def test_wrong_values_are_named(given: dict[str, str], word: str) -> None:
    assert word in refused(given)


def test_what_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        read_options({"subscribe": "t"}, streaming=False)
    with pytest.raises(ConfigError, match="one of subscribe, subscribePattern and assign"):
        read_options(SERVERS, streaming=False)
    for text in ('{"t": 0}', '{"t": [-1]}', "[]", "{}"):
        with pytest.raises(ConfigError, match="assign"):
            read_options({**SERVERS, "assign": text}, streaming=False)
    with pytest.raises(ConfigError, match="regular expression"):
        read_options({**SERVERS, "subscribePattern": "("}, streaming=False)


def test_a_stream_has_no_end_and_a_batch_no_trigger() -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        assert name in refused({name: "latest"}, streaming=True)
    assert batch(maxOffsetsPerTrigger="10").ignored == ("maxOffsetsPerTrigger",)
    assert stream(maxOffsetsPerTrigger="10").max_offsets_per_trigger == 10


def test_limits_and_delays() -> None:
    found = stream(minOffsetsPerTrigger="5", maxTriggerDelay="2m", **{"fetchOffset.numRetries": "0"})
    assert found.min_offsets_per_trigger == 5 and found.max_trigger_delay_ms == 120_000
    assert found.offset_retries == 0
    assert stream(**{"kafkaConsumer.pollTimeoutMs": "512"}).stall_ms == 512


def test_every_name_is_documented() -> None:
    from tests.spark.conftest import ROOT

    page = (ROOT / "docs" / "spark.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_options_and_losses_can_be_pickled() -> None:
    options: Any = pickle.loads(pickle.dumps(stream(startingOffsets="earliest")))
    assert options == stream(startingOffsets="earliest")
    error = pickle.loads(pickle.dumps(DataLostError("gone", [("t", 0, 1, 5)])))
    assert error.ranges == (("t", 0, 1, 5),) and str(error) == "gone"


def test_a_streams_offset_is_the_same_text_whatever_its_order() -> None:
    one = StreamOffset({T1: 2, T0: 1}, {"t": "id"}, unstarted=True)
    other = StreamOffset({T0: 1, T1: 2}, {"t": "id"}, unstarted=True)
    assert list(one.to_dict()["t"]) == ["0", "1"] and one.to_dict() == other.to_dict()
    assert StreamOffset.from_dict(one.to_dict()) == one


def test_a_streams_offset_is_what_sparks_parser_reads() -> None:
    """It, and lag listeners, go through the partitions of each topic: what is ours has none."""
    written = StreamOffset({T0: 1, T1: 2}, {"t": "some-id"}, unstarted=True).to_dict()
    assert {name: found for name, found in written.items() if found} == {"t": {"0": 1, "1": 2}}
    assert all(type(found) is dict for found in written.values())


def test_checkpoints_of_earlier_versions_can_be_read() -> None:
    old = {"t": {"0": 1}, "#topic_ids": {"t": "some-id"}, "#unstarted": True}
    assert StreamOffset.from_dict(old) == StreamOffset({T0: 1}, {"t": "some-id"}, unstarted=True)


def test_checkpoints_of_sparks_source_can_be_read() -> None:
    assert StreamOffset.from_dict({"t": {"1": 7, "0": 3}}) == StreamOffset({T0: 3, T1: 7})
