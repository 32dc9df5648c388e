"""The web console over HTTP, on both brokers: what pages and JSON say about topics, groups and loads."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from millstream import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from millstream.spark.load.decisions.commit_metadata import CommitMetadata
from tests.conftest import NewTopic
from tests.system.console_server import Page, Served, serving
from tests.system.members import Member, until_owns
from tests.waiting import until

EVIL = "\"><script>alert(1)</script>&'<img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def served(bootstrap_servers: str) -> Iterator[Served]:
    with serving(bootstrap_servers) as served:
        yield served


def send(producer: Producer, topic: str, values: list[bytes], partition: int = 0) -> None:
    for number, value in enumerate(values):
        producer.send(topic, value, key=b"k%d" % number, headers=[("n", b"%d" % number)], partition=partition)
    producer.flush()


def well_made(page: Page) -> None:
    """Nothing that the content security policy forbids, and what readers of screens need."""
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (
            tag,
            attributes,
        )
        if tag == "th":
            assert attributes.get("scope") in ("col", "row")
        if tag == "script":
            assert attributes.get("src") == "/static/console.js"
        assert tag not in ("style", "iframe", "img")
        for name in ("href", "src", "action"):
            assert (attributes.get(name) or "/").startswith(("/", "#")), (tag, attributes)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)), ids
    labelled = {attributes.get("aria-labelledby") for _, attributes in page.tags} - {None}
    assert labelled <= set(ids)
    assert [tag for tag, attributes in page.tags if attributes.get("lang")] == ["html"]


def test_the_overview(
    served: Served, admin: Admin, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=3)
    send(producer, topic, [b"x"] * 7)
    admin.reset_offsets(group, offsets={TopicPartition(topic, 0): 2})
    served.until_round()

    page = served.page("/")
    well_made(page)
    assert page.row(topic)[:3] == [topic, "3", "7"]
    until(lambda: served.page("/").row(topic)[3] not in ("0 B", "–"), "its size, which is asked for seldom")
    assert page.row(group)[:4] == [group, "Empty", "0", "5"]
    assert served.console.settings.servers in page.text

    found = served.ok("/api/overview").json
    assert found["trouble"] is None and found["age_s"] >= 0
    assert found["cluster"]["brokers"] and found["cluster"]["cluster_id"]
    assert found["totals"]["records"] >= 7
    [row] = [one for one in found["topics"] if one["name"] == topic]
    assert (row["partitions"], row["records"]) == (3, 7)
    [row] = [one for one in found["groups"] if one["group"] == group]
    assert (row["lag"], row["members"], row["topics"]) == (5, 0, [topic])
    assert any(one["name"] == "__consumer_offsets" for one in found["topics"])
    assert "__consumer_offsets" not in page.text
    assert "__consumer_offsets" in served.page("/?internal").text


def test_a_topic(served: Served, admin: Admin, producer: Producer, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(partitions=2, retention_ms=12345678)
    send(producer, topic, [b'{"id":1.10,"long":"%s"}' % (b"x" * 60), "grün".encode(), b"\x00\xff"])
    send(producer, topic, [b"other"], partition=1)
    producer.send(topic, None, partition=1).result()
    admin.reset_offsets(group, offsets={TopicPartition(topic, 0): 1})
    served.until_round()

    page = served.page(f"/topics/{topic}")
    well_made(page)
    assert page.row("0")[2:5] == ["0", "3", "3"]
    assert page.row("retention.ms") == ["retention.ms", "12345678"]
    assert page.row(group)[:4] == [group, "Empty", "0", "2"]
    assert '{ "id": 1.10, "long":' in page.text
    assert "grün" in page.text and "00 ff" in page.text and "null" in page.text

    found = served.ok(f"/api/topics/{topic}").json
    assert [one["end_offset"] for one in found["partitions"]] == [3, 2]
    assert {one["name"]: one["own"] for one in found["configs"]}["retention.ms"] is True
    records = served.ok(f"/api/topics/{topic}/records").json["records"]
    assert len(records) == 5
    kinds = {(one["partition"], one["offset"]): one["value"]["kind"] for one in records}
    assert kinds == {(0, 0): "json", (0, 1): "text", (0, 2): "hex", (1, 0): "text", (1, 1): "null"}
    [first] = [one for one in records if (one["partition"], one["offset"]) == (0, 0)]
    assert first["key"] == {"kind": "text", "text": "k0", "bytes": 2, "cut": False}
    assert first["headers"] == [{"name": "n", "kind": "text", "text": "0", "bytes": 1, "cut": False}]


def test_records_are_paged_by_offset(served: Served, producer: Producer, new_topic: NewTopic) -> None:
    topic = new_topic()
    send(producer, topic, [b"value-%d" % number for number in range(50)])
    served.until_round()

    newest = served.page(f"/topics/{topic}")
    assert "value-49" in newest.text and "value-30" in newest.text and "value-29" not in newest.text
    older = f"/topics/{topic}?partition=0&offset=10&count=20"
    assert f"{older}#records" in newest.links
    page = served.page(older)
    assert "value-10" in page.text and "value-29" in page.text and "value-30" not in page.text
    assert f"/topics/{topic}?partition=0&offset=30&count=20#records" in page.links
    assert f"/topics/{topic}?partition=0&offset=0&count=20#records" in page.links

    listed = served.ok(f"/api/topics/{topic}/records?partition=0&offset=5&count=3").json["records"]
    assert [one["offset"] for one in listed] == [7, 6, 5]
    assert served.ok(f"/api/topics/{topic}/records?partition=0&offset=50").json["records"] == []


def test_a_large_record_is_cut_and_can_be_opened(
    served: Served, producer: Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(producer, topic, [b"x" * 500_000, b"y"])
    served.until_round()
    large = served.ok(f"/api/topics/{topic}/records").json["records"][-1]["value"]
    assert (large["bytes"], len(large["text"]), large["cut"]) == (500_000, 2048, True)
    alone = served.ok(f"/api/topics/{topic}/records?partition=0&offset=0&count=1").json["records"][0]
    assert len(alone["value"]["text"]) == 64 << 10
    assert len(served.ok(f"/topics/{topic}").text) < 50_000


def test_new_records_are_seen(served: Served, producer: Producer, new_topic: NewTopic) -> None:
    topic = new_topic()

    def is_shown(value: str) -> bool:
        return value in served.get(f"/topics/{topic}").text

    send(producer, topic, [b"value-one"])
    until(lambda: is_shown("value-one"), "the first record")
    send(producer, topic, [b"value-two"])
    until(lambda: is_shown("value-two"), "the second record")


def test_a_group_with_members(
    served: Served, bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    send(producer, topic, [b"x"] * 10)
    with Member(
        bootstrap_servers, group, [topic], client_id="reader-one", enable_auto_commit=False
    ) as member:
        until_owns(member, frozenset({TopicPartition(topic, 0), TopicPartition(topic, 1)}))
        member.call(lambda consumer: consumer.commit({TopicPartition(topic, 0): 4}))
        served.until_round()
        served.until_round()

        page = served.page(f"/groups/{group}")
        well_made(page)
        assert "Stable" in page.text
        assert page.row(topic)[1:5] == ["0", "4", "10", "6"]
        assert page.row(topic)[-1] == "reader-one"
        members = page.row("reader-one")
        assert members[3] == f"{topic} 0–1"
        assert any(tag == "path" for tag, _ in page.tags), "the chart"

        found = served.ok(f"/api/groups/{group}").json
        assert (found["state"], found["lag"]) == ("Stable", 6)
        assert found["members"][0]["client_id"] == "reader-one"
        assert len(found["lag_history"]) >= 2 and found["lag_history"][-1]["lag"] == 6
        assert found["trend"] == "standing still"

        def moves() -> bool:
            send(producer, topic, [b"x"] * 5)
            return bool(served.ok(f"/api/groups/{group}").json["produced_per_s"])

        until(moves, "a rate")


def test_nothing_of_a_record_or_a_name_becomes_markup(
    served: Served, admin: Admin, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    evil = f"{group}{EVIL}"
    producer.send(topic, EVIL.encode(), key=EVIL.encode(), headers=[(EVIL, EVIL.encode())]).result()
    producer.send(topic, json.dumps({EVIL: EVIL}).encode()).result()
    admin.reset_offsets(evil, offsets={TopicPartition(topic, 0): 1})
    try:
        served.until_round()
        paths = [
            "/",
            f"/topics/{topic}",
            f"/groups/{quote(evil, safe='')}",
            f"/groups/{quote(evil + 'x', safe='')}",
        ]
        for path in paths:
            answer = served.get(path)
            assert answer.status == (200 if not path.endswith("x") else 404)
            well_made(answer.page)
            assert "<script>alert" not in answer.text and "<img" not in answer.text
            assert EVIL in answer.page.text or EVIL[1:] in answer.page.text
            assert [tag for tag, _ in answer.page.tags].count("script") == 1
    finally:
        admin.delete_groups(evil)


def test_what_is_not_there(served: Served, admin: Admin, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    admin.reset_offsets(group, offsets={TopicPartition(topic, 0): 0})
    served.until_round()
    missing = served.get(f"/topics/{topic}x")
    assert missing.status == 404
    assert f"/topics/{topic}" in missing.page.links
    assert served.get(f"/api/groups/{group}x").json["near"][0] == group
    assert served.get(f"/api/topics/{topic}/records?partition=7").status == 404
    assert served.get(f"/api/topics/{topic}/records?offset=7").status == 400
    bad = served.get(f"/topics/{topic}?partition=0&offset=-1")
    assert (bad.status, "offset must be a number" in bad.text) == (400, True)
    assert served.get("/nowhere").status == 404


def test_a_load_is_shown_with_its_table(
    bootstrap_servers: str, admin: Admin, producer: Producer, new_topic: NewTopic, group: str, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake")
    from millstream.spark import DeltaSink
    from tests.spark.sinks.driving import RAW_TABLES, Driver, step

    topic = new_topic()
    send(producer, topic, [b"x"] * 10)
    address = f"delta:{tmp_path / 'orders'}"
    driver = Driver(DeltaSink(tmp_path / "orders"), RAW_TABLES, group).prepared()
    topic_id = base64_to_hex(admin.describe_topic(topic).topic_id)
    driver.load(step(0, 0, 6, topic=topic, topic_id=topic_id))
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    with Consumer(settings) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.commit({place: OffsetAndMetadata(6, str(CommitMetadata("0001-cycle", address)))})

    with serving(bootstrap_servers, tables=[address]) as served:
        served.until_round()
        page = served.page("/")
        assert page.row(address)[1:6] == [group, topic, "Empty", "4", "4"]
        details = served.page(f"/groups/{group}")
        well_made(details)
        assert "0001-cycle" in details.text
        [load] = [one for one in served.ok("/api/loads").json["loads"] if one["group"] == group]
        assert load["status"]["partitions"][0]["loaded"] == 6
    with serving(bootstrap_servers) as served:
        served.until_round()
        assert "start the console with --table" in served.page(f"/groups/{group}").text


def base64_to_hex(text: str) -> str:
    return base64.urlsafe_b64decode(text + "==").hex()


def test_many_viewers_cause_one_round_each_refresh(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic
) -> None:
    topic = new_topic()
    send(producer, topic, [b"x"] * 3)
    with serving(bootstrap_servers, refresh_s=1.0) as served:
        served.until_round()
        begun_s = time.monotonic()
        before = served.ok("/healthz").json["rounds"]

        def look(viewer: int) -> int:
            return sum(len(served.ok(path).text) > 0 for path in ("/", f"/topics/{topic}", "/api/groups"))

        with ThreadPoolExecutor(20) as viewers:
            answers = sum(viewers.map(look, range(60)))
        rounds = served.ok("/healthz").json["rounds"] - before
        elapsed_s = time.monotonic() - begun_s
    assert answers == 180
    # Rounds begin at least a refresh apart, and end at least half of one apart.
    assert rounds <= 2 * elapsed_s + 2, f"{rounds} rounds in {elapsed_s:.1f} s"
