"""What has a client send a request of each API: calls of users, whose next request the proxy refuses."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from millstream import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from millstream.consumer.consumer import session_of
from millstream.errors import ErrorCode
from millstream.wire.messages.fetch import FetchRequest
from millstream.wire.messages.groups import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from millstream.wire.schema import Api, Request
from tests.kafka.differential.values import API_BY_NAME
from tests.kafka.frame_proxy import FrameProxy
from tests.kafka.refusals import Refusal
from tests.system.raw_client import RawClient
from tests.waiting import SECONDS, until

QUICK: Final[dict[str, Any]] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 40}
MEMBER: Final[dict[str, Any]] = {
    **QUICK,
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 40,
    "fetch_max_wait_ms": 20,
    "enable_auto_commit": False,
}


class World:
    """A broker behind a proxy, with one topic of one partition, and ways around the proxy."""

    def __init__(self, proxy: FrameProxy, producer: Producer, admin: Admin, topic: str) -> None:
        self.proxy = proxy
        self.producer = producer
        self.admin = admin
        self.partition = TopicPartition(topic, 0)

    def make_true(self, code: int, request: Request) -> None:
        """Have the broker agree with an error that it is said to have answered with."""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and isinstance(request, FetchRequest):
            ((fetched,),) = (topic.partitions for topic in request.topics)
            self.admin.delete_records({self.partition: fetched.fetch_offset})  # a reset leads back there
        elif code == ErrorCode.UNKNOWN_MEMBER_ID and (member_id := getattr(request, "member_id", "")):
            leave = LeaveGroupRequest(
                group_id=getattr(request, "group_id", ""), members=[MemberIdentity(member_id=member_id)]
            )
            with RawClient(f"127.0.0.1:{self.proxy.target}") as client:
                client.call(leave, LEAVE_GROUP.max_version, LeaveGroupResponse)

    def write(self) -> int:
        """Write a record past the proxy; returns its offset."""
        sent = self.producer.send(self.partition.topic, b"x", partition=0)
        return sent.result(SECONDS).offset


class Scenario:
    """One client under a name of its own. ``prepare`` comes before the refusal, ``act`` meets it.

    ``go_on`` follows when ``act`` has raised, or when the refusal may have consequences later.
    """

    has_consequences = False
    asks_for_metadata = False
    """Whether metadata are asked for whatever the answer is."""

    def __init__(self, world: World, asker: str) -> None:
        self.world = world
        self.refusal: Refusal | None = None
        self.api: Api = API_BY_NAME[asker.partition(",")[0]]
        self.name = f"{self.api.name}-{uuid.uuid4().hex[:12]}"
        self.common: dict[str, Any] = {
            "bootstrap_servers": world.proxy.address,
            "client_id": self.name,
        }

    def refuse(self, code: int, level: int, times: int = 1, *, holds: bool = False) -> Refusal:
        before = partial(self.world.make_true, code)
        self.refusal = Refusal(self.api, code, self.name, level, times, before, holds)
        self.world.proxy.refusal = self.refusal
        return self.refusal

    def refuse_no_more(self) -> None:
        self.world.proxy.refusal = None
        if self.refusal is not None:
            self.refusal.over.set()

    def prepare(self) -> None:
        """Get as far as to the request that is to be refused."""

    def act(self) -> None:
        raise NotImplementedError

    def go_on(self) -> None:
        self.act()

    def idle(self) -> None:
        """Do what a user does who waits."""

    def until_refused(self) -> None:
        assert self.refusal is not None
        assert self.refusal.done.wait(SECONDS), "nothing was refused"

    def close(self) -> None:
        """End the client."""


class Sending(Scenario):
    """A producer that sends; ``count`` records in one batch."""

    def __init__(self, world: World, asker: str, count: int = 1, *, is_new: bool = False) -> None:
        super().__init__(world, asker)
        self._count = count
        self._is_new = is_new
        linger_ms = 0 if count == 1 else 5000
        self._producer = Producer(**self.common, **QUICK, linger_ms=linger_ms)

    def prepare(self) -> None:
        if not self._is_new:
            self.act()

    def act(self) -> None:
        topic = self.world.partition.topic
        sent = [self._producer.send(topic, b"x" * 100, partition=0) for _ in range(self._count)]
        if self._count > 1:
            self._producer.flush(SECONDS)
        offsets = [each.result(SECONDS).offset for each in sent]
        known = [offset for offset in offsets if offset >= 0]
        assert known == list(range(known[0], known[0] + self._count)) if known else self._count == 1

    def close(self) -> None:
        self._producer.close()


class Reading(Scenario):
    """A consumer; ``step`` writes a record, and reads up to it: nothing is lost, and nothing comes twice."""

    def __init__(self, world: World, asker: str, **settings: object) -> None:
        super().__init__(world, asker)
        self.consumer = Consumer(**self.common, **MEMBER | settings)
        self._next_offset: int | None = None

    def step(self) -> None:
        written = self.world.write()

        def poll() -> bool:
            for record in self.consumer.poll(0.1):
                assert self._next_offset in (None, record.offset), "neither lost nor repeated"
                self._next_offset = record.offset + 1
            return self._next_offset == written + 1

        until(poll, f"the record at {written}: {self.consumer.diagnose()}")

    def until_quiet(self) -> None:
        """Wait until all metadata have come that somebody has asked for so far."""
        metadata = session_of(self.consumer).client.metadata
        until(lambda: not metadata._waiting and metadata._in_flight is None, "metadata")

    def close(self) -> None:
        self.consumer.close()


class Opening(Reading):
    """A consumer that is new, and knows nothing of the cluster."""

    def act(self) -> None:
        self.consumer.assign([self.world.partition])
        self.consumer.seek(self.world.partition, self.world.write())
        self.step()


class Fetching(Reading):
    """Reads a partition of its own choice."""

    def prepare(self) -> None:
        self.consumer.assign([self.world.partition])
        self.consumer.seek(self.world.partition, self.world.write())
        self.step()
        self.until_quiet()

    def act(self) -> None:
        self.step()
        self.until_refused()
        self.step()

    def go_on(self) -> None:
        self.step()


class Asking(Reading):
    """A consumer that is asked for something, and has read before, unless it has a group."""

    def __init__(self, world: World, asker: str, ask: Callable[[Asking], object], **settings: object) -> None:
        super().__init__(world, asker, **settings)
        self._ask = ask
        self._is_new = "group_id" in settings

    def prepare(self) -> None:
        if self._is_new:
            return
        self.consumer.assign([self.world.partition])
        self.consumer.seek(self.world.partition, self.world.write())
        self.step()
        self.until_quiet()

    def act(self) -> None:
        self._ask(self)


def _to_the_end(scenario: Asking) -> None:
    partition = scenario.world.partition
    scenario.consumer.seek_to_end(partition)
    assert scenario.consumer.position(partition, SECONDS) > 0


def _validate(scenario: Asking) -> None:
    partition = scenario.world.partition
    scenario.consumer.pause(partition)  # others delete records: a fetch could find that this one is gone
    scenario.consumer.seek(partition, OffsetAndMetadata(1, "", 0))
    assert scenario.consumer.position(partition, SECONDS) == 1


class Joining(Reading):
    """A member that is on its way into a group."""

    def __init__(self, world: World, asker: str) -> None:
        super().__init__(world, asker, group_id=f"g-{uuid.uuid4().hex}")
        self._is_subscribed = False

    def act(self) -> None:
        if not self._is_subscribed:
            self.consumer.subscribe([self.world.partition.topic])
            self._is_subscribed = True
        self.step()


class Belonging(Joining):
    """A member that has read and committed something."""

    def prepare(self) -> None:
        super().act()
        self.consumer.commit(timeout=SECONDS)
        self.until_quiet()

    def act(self) -> None:
        self.until_refused()
        self.step()

    def go_on(self) -> None:
        self.step()

    def idle(self) -> None:
        self.consumer.poll(0.01)


class Committing(Belonging):
    """A member that commits, and then goes on reading."""

    has_consequences = True

    def act(self) -> None:
        self.consumer.commit(timeout=SECONDS)


class Leaving(Belonging):
    """A member that leaves."""

    def act(self) -> None:
        self.consumer.close(SECONDS)

    def idle(self) -> None:
        """There is nothing left to do."""


class Administering(Scenario):
    """An administrator's call."""

    asks_for_metadata = True

    def __init__(self, world: World, asker: str, call: Callable[[Admin, World, str], object]) -> None:
        super().__init__(world, asker)
        self._admin = Admin(**self.common, **QUICK)
        self._call = call

    def prepare(self) -> None:
        self._admin.describe_cluster()

    def act(self) -> None:
        self._call(self._admin, self.world, self.name)

    def close(self) -> None:
        self._admin.close()


class Connecting(Administering):
    """An administrator that has no connection yet."""

    def prepare(self) -> None:
        """There is nothing before the first request."""


def _topic(world: World, name: str) -> str:
    world.admin.create_topic(name, partitions=1, exist_ok=True)
    return name


def _group(world: World, name: str) -> str:
    world.admin.reset_offsets(name, offsets={world.partition: 0})
    return name


def _committed(scenario: Asking) -> None:
    scenario.consumer.committed([scenario.world.partition], SECONDS)


def _admin(call: Callable[[Admin, World, str], object]) -> Callable[[World, str], Scenario]:
    return partial(Administering, call=call)


def _asking(ask: Callable[[Asking], object], **settings: Any) -> Callable[[World, str], Scenario]:
    return partial(Asking, ask=ask, **settings)


SCENARIOS: Final[Mapping[str, Callable[[World, str], Scenario]]] = {
    "ApiVersions": partial(Connecting, call=lambda admin, world, name: admin.describe_cluster()),
    "Produce": Sending,
    "Produce, several records": partial(Sending, count=4),
    "InitProducerId": partial(Sending, is_new=True),
    "Fetch": Fetching,
    "Fetch, its session": Fetching,
    "ListOffsets": _asking(_to_the_end),
    "ListOffsets, end_offsets": _asking(
        lambda scenario: scenario.consumer.end_offsets([scenario.world.partition], SECONDS)
    ),
    "ListOffsets, Admin": _admin(lambda admin, world, name: admin.list_offsets([world.partition])),
    "OffsetForLeaderEpoch": _asking(_validate),
    "Metadata": Opening,
    "Metadata, of partitions": Opening,
    "Metadata, all of it": Opening,
    "Metadata, subscribed": Joining,
    "Metadata, Producer": partial(Sending, is_new=True),
    "FindCoordinator": _asking(_committed, group_id="asking"),
    "JoinGroup": Joining,
    "SyncGroup": Joining,
    "Heartbeat": Belonging,
    "LeaveGroup": Leaving,
    "LeaveGroup, one member": Leaving,
    "OffsetCommit": Committing,
    "OffsetCommit, Admin": _admin(
        lambda admin, world, name: admin.reset_offsets(name, offsets={world.partition: 0})
    ),
    "OffsetFetch": _asking(_committed, group_id="asking"),
    "OffsetFetch, of partitions": _asking(_committed, group_id="asking"),
    "OffsetFetch, Admin": _admin(lambda admin, world, name: admin.group_offsets(name)),
    "OffsetDelete": _admin(
        lambda admin, world, name: admin.delete_group_offsets(_group(world, name), [world.partition])
    ),
    "OffsetDelete, of partitions": _admin(
        lambda admin, world, name: admin.delete_group_offsets(_group(world, name), [world.partition])
    ),
    "DescribeGroups": _admin(lambda admin, world, name: admin.describe_group(_group(world, name))),
    "ListGroups": _admin(lambda admin, world, name: admin.list_groups()),
    "DeleteGroups": _admin(lambda admin, world, name: admin.delete_groups(_group(world, name))),
    "CreateTopics": _admin(lambda admin, world, name: admin.create_topic(name, partitions=1)),
    "DeleteTopics": _admin(lambda admin, world, name: admin.delete_topics(_topic(world, name))),
    "CreatePartitions": _admin(lambda admin, world, name: admin.create_partitions(_topic(world, name), 2)),
    "DeleteRecords": _admin(lambda admin, world, name: admin.delete_records({world.partition: 0})),
    "DescribeConfigs": _admin(lambda admin, world, name: admin.topic_configs(world.partition.topic)),
    "IncrementalAlterConfigs": _admin(
        lambda admin, world, name: admin.alter_configs(world.partition.topic, {"retention.ms": 1 << 40})
    ),
}
