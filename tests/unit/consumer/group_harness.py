"""A hand to play the coordinator and the driver with, one step at a time."""

from __future__ import annotations

from typing import Any, TypeVar

from millstream.config import ConsumerConfig
from millstream.consumer.assignors.base import Assignment, ClusterView
from millstream.consumer.assignors.protocol import encode_assignment
from millstream.consumer.membership.core import Membership
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import Event, TopicsNeeded, Wait
from millstream.consumer.sends import Send
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millstream.wire.schema import Request, Response
from tests.unit.consumer.configs import config

E = TypeVar("E")


def partitions(*names: str) -> tuple[TopicPartition, ...]:
    """``partitions("t-0", "t-1")``."""
    split = (name.rsplit("-", 1) for name in names)
    return tuple(TopicPartition(topic, int(number)) for topic, number in split)


def settings(*assignors: object, **changes: Any) -> ConsumerConfig:
    return config(partition_assignment_strategy=assignors or ("range",), **changes)


class Hand:
    """Steps a membership: sends are kept until they are answered."""

    def __init__(self, group_settings: ConsumerConfig, topics: tuple[str, ...] = ("t",)) -> None:
        self.now_ms = 1_000
        self.membership = Membership(group_settings)
        self.sends: list[Send] = []
        self.events: list[Event] = []
        self.membership.set_subscription(topics)

    def step(self) -> None:
        self.sends += self.membership.poll(self.now_ms)
        self.events += self.membership.take_events()

    def poll(self, *, waiting: bool = True) -> None:
        """The user waits for records."""
        self.membership.user_polled(self.now_ms, waiting=waiting)
        self.step()

    def leave_poll(self) -> None:
        self.membership.user_polled(self.now_ms)
        self.step()

    def after(self, delay_ms: int) -> None:
        """Let time pass."""
        self.now_ms += delay_ms
        self.step()

    def callbacks_done(self) -> None:
        self.membership.callbacks_done(self.now_ms)
        self.step()

    def phase(self) -> MemberPhase:
        return self.membership.phase

    # ---- requests ----

    def targets(self) -> list[object]:
        return [send.target for send in self.sends]

    def kinds(self) -> list[str]:
        return [send.request_type.api.name for send in self.sends]

    def take(self, request_type: type[Request], version: int | None = None) -> tuple[int, Any]:
        """The only request of this type that waits for its answer: its token, and itself."""
        found = [send for send in self.sends if send.request_type is request_type]
        assert len(found) == 1, f"{self.kinds()} wait"
        self.sends.remove(found[0])
        chosen = request_type.api.max_version if version is None else version
        return found[0].token, found[0].build(chosen)

    def answer(self, request_type: type[Request], response: Response) -> Any:
        token, request = self.take(request_type)
        self.membership.receive(token, response, self.now_ms)
        self.step()
        return request

    def fail(self, request_type: type[Request], error: Exception) -> Any:
        token, request = self.take(request_type)
        self.membership.failed(token, error, self.now_ms)
        self.step()
        return request

    # ---- answers ----

    def find(self, error_code: int = ErrorCode.NONE, node_id: int = 7) -> FindCoordinatorRequest:
        found = Coordinator(key="g", node_id=node_id, host="h", port=1, error_code=error_code)
        request: FindCoordinatorRequest = self.answer(
            FindCoordinatorRequest, FindCoordinatorResponse(coordinators=[found])
        )
        return request

    def refresh(self) -> None:
        """Answer that a pattern member knows all topics now; it must have asked once."""
        asked = [event for event in self.events if isinstance(event, TopicsNeeded)]
        assert len(asked) == 1, self.events
        self.events.remove(asked[0])
        self.membership.topics_refreshed()
        self.step()

    def join(
        self,
        generation: int = 1,
        *,
        error: int = ErrorCode.NONE,
        member_id: str = "me",
        leader: str = "other",
        protocol: str = "range",
        members: dict[str, bytes] | None = None,
        skip_assignment: bool = False,
        protocol_type: str | None = "consumer",
    ) -> JoinGroupRequest:
        response = JoinGroupResponse(
            error_code=error,
            generation_id=generation,
            protocol_type=protocol_type,
            protocol_name=protocol,
            leader=leader,
            member_id=member_id,
            skip_assignment=skip_assignment,
            members=[
                JoinGroupResponseMember(member_id=name, metadata=metadata)
                for name, metadata in (members or {}).items()
            ],
        )
        request: JoinGroupRequest = self.answer(JoinGroupRequest, response)
        return request

    def sync(self, *assigned: str, error: int = ErrorCode.NONE) -> SyncGroupRequest:
        data = encode_assignment(Assignment(partitions(*assigned)))
        request: SyncGroupRequest = self.answer(
            SyncGroupRequest, SyncGroupResponse(error_code=error, assignment=data)
        )
        return request

    def beat(self, error: int = ErrorCode.NONE) -> HeartbeatRequest:
        request: HeartbeatRequest = self.answer(HeartbeatRequest, HeartbeatResponse(error_code=error))
        return request

    # ---- shortcuts ----

    def event(self, event_type: type[E]) -> E:
        """The only event of this type since the last look; all are forgotten."""
        found = [event for event in self.events if isinstance(event, event_type)]
        assert len(found) == 1, self.events
        self.events.clear()
        return found[0]

    def has(self, event_type: type[Any]) -> bool:
        return any(isinstance(event, event_type) for event in self.events)

    def settle(self, *assigned: str, generation: int = 1, protocol: str = "range") -> None:
        """Join as a follower, from wherever the member is, with all callbacks."""
        self.poll()
        if self.membership.coordinator is None:
            self.find()
        self.join(generation, protocol=protocol)
        self.sync(*assigned)
        self.run_callbacks()
        self.events.clear()

    def run_callbacks(self) -> None:
        while self.membership.waiting().what is Wait.CALLBACKS:
            self.callbacks_done()

    def metadata(self, **counts: int) -> None:
        self.membership.update_cluster(ClusterView.of(counts), counts, self.now_ms)
        self.step()
