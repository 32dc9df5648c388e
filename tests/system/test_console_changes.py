"""What users of the console with the role ``change`` can do, and no one else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import Admin, Consumer, Producer, TopicPartition
from millstream.console.login.login import Login
from millstream.console.login.users import Role, Users, set_user
from tests.conftest import NewTopic
from tests.system.console_server import PASSWORD, Answer, Browser, Served, serving
from tests.waiting import SECONDS, until

TOKEN = "a-token-of-many-characters"
ADDRESSES = ("/change/create-topic", "/change/delete-topic", "/change/move-group")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.json"
    set_user(path, "ann", PASSWORD, Role.CHANGE)
    set_user(path, "bob", PASSWORD)
    return path


@pytest.fixture
def served(bootstrap_servers: str, users: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("CONSOLE_TOKEN", TOKEN)
    with serving(bootstrap_servers, login=Login.configured(Users(users), "${env:CONSOLE_TOKEN}")) as served:
        yield served


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


@pytest.fixture
def ann(served: Served) -> Browser:
    browser = Browser(served)
    assert browser.log_in("ann").status == 303
    return browser


def change(browser: Browser, what: str, **fields: str) -> Answer:
    return browser.send(f"/change/{what}", {"csrf": browser.csrf("/"), **fields})


def topics(admin: Admin) -> set[str]:
    return set(admin.list_topics())


def test_a_topic_is_created_and_deleted(ann: Browser, admin: Admin) -> None:
    name = f"console-{uuid.uuid4().hex[:8]}"
    assert change(ann, "create-topic", name=name, partitions="3").status == 303
    assert len(admin.describe_topic(name).partitions) == 3
    until(lambda: ann.send(f"/topics/{name}").status == 200, "the console knows the topic")
    assert "Delete with all records" in ann.send(f"/topics/{name}").text
    for confirm in ("", "wrong", name.upper()):
        refused = change(ann, "delete-topic", name=name, confirm=confirm)
        assert refused.status == 400 and "nothing was changed" in refused.text
    assert name in topics(admin)
    done = change(ann, "delete-topic", name=name, confirm=name)
    assert (done.status, done.headers["location"]) == (303, "/")
    until(lambda: name not in topics(admin), "the topic is gone")


def test_what_the_brokers_refuse_is_said(ann: Browser, topic: str) -> None:
    again = change(ann, "create-topic", name=topic)
    assert again.status == 409 and topic in again.text
    evil = change(ann, "create-topic", name="<script>alert(1)</script>")
    assert evil.status == 409 and "<script>alert" not in evil.text
    for wrong in ("0", "-1", "1e3", "x", "99999999"):
        assert change(ann, "create-topic", name="x", partitions=wrong).status == 400
    assert change(ann, "create-topic", name=" ").status == 400
    assert change(ann, "delete-topic", name="not-there", confirm="not-there").status == 404


def test_internal_topics_stay(ann: Browser, admin: Admin, topic: str) -> None:
    admin.reset_offsets("console-commits", offsets={TopicPartition(topic, 0): 0})  # makes the internal topic
    name = "__consumer_offsets"
    until(lambda: ann.send(f"/topics/{name}").status == 200, "the console knows it")
    assert "Delete with all records" not in ann.send(f"/topics/{name}").text
    assert change(ann, "delete-topic", name=name, confirm=name).status == 409


def test_a_group_is_moved_only_without_members(
    ann: Browser, bootstrap_servers: str, admin: Admin, new_topic: NewTopic, producer: Producer
) -> None:
    topic, group = new_topic(), f"console-{uuid.uuid4().hex[:8]}"
    for number in range(5):
        producer.send(topic, str(number).encode()).result(SECONDS)
    page = f"/groups/{group}"
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < 5:
            read += len(consumer.poll(timeout=SECONDS))
        consumer.commit()
        until(lambda: ann.send(page).status == 200, "the console knows the group")
        refused = change(ann, "move-group", name=group, confirm=group, to="earliest")
        assert refused.status == 409, refused
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 5
    until(lambda: "Move this group" in ann.send(page).text, "the console sees that no member is left")
    assert change(ann, "move-group", name=group, confirm=group, to="elsewhere").status == 400
    assert change(ann, "move-group", name=group, confirm="", to="earliest").status == 400
    done = change(ann, "move-group", name=group, confirm=group, to="earliest")
    assert (done.status, done.headers["location"]) == (303, page)
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 0
    assert change(ann, "move-group", name=group, confirm=group, to="latest").status == 303
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 5


def test_who_may_look_changes_nothing(served: Served, admin: Admin, topic: str) -> None:
    bob = Browser(served)
    bob.log_in("bob")
    until(lambda: bob.send(f"/topics/{topic}").status == 200, "the console knows the topic")
    for path in ("/", f"/topics/{topic}"):
        assert "/change/" not in bob.send(path).text and "read-only" in bob.send(path).text
    refused = change(bob, "delete-topic", name=topic, confirm=topic)
    assert refused.status == 403 and "--role change" in refused.text
    assert change(bob, "create-topic", name="by-bob").status == 403
    assert change(bob, "move-group", name="g", confirm="g", to="latest").status == 403
    assert topic in topics(admin) and "by-bob" not in topics(admin)


def test_only_a_form_of_the_session_changes_something(
    served: Served, ann: Browser, admin: Admin, topic: str
) -> None:
    other = Browser(served)
    other.log_in("ann")
    fields = {"name": topic, "confirm": topic, "to": "latest"}
    evil = {"Origin": "https://evil.example"}
    for address in ADDRESSES:
        for csrf in ("", "wrong", other.csrf("/")):
            assert ann.send(address, {"csrf": csrf, **fields}).status == 403
        assert ann.send(address, {"csrf": ann.csrf("/"), **fields}, **evil).status == 403
        assert ann.send(f"{address}?csrf={ann.csrf('/')}&name={topic}&confirm={topic}").status == 405
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        body = f"csrf=&name={topic}&confirm={topic}"
        assert served.get(address, method="POST", body=body, headers=bearer).status == 403
        assert served.get(address, method="POST", body=body).status == 303, "to the login"
    assert topic in topics(admin)


def test_another_role_ends_the_session(ann: Browser, users: Path) -> None:
    set_user(users, "ann", PASSWORD, Role.LOOK)
    assert ann.send("/").status == 303


def test_a_console_without_a_login_changes_nothing(bootstrap_servers: str) -> None:
    with serving(bootstrap_servers) as served:
        for address in ADDRESSES:
            assert served.get(address, method="POST", body="name=x&confirm=x").status == 404
        assert "/change/" not in served.ok("/").text
