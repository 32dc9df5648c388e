"""Calls that wait: repeated while that may help, and sent to whoever is meant."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.targets import AnyNode, CoordinatorOf, Node
from millstream.errors import ErrorCode, MillstreamTimeoutError, NetworkError, raise_for_code
from millstream.wire.messages.group_admin import ListGroupsRequest, ListGroupsResponse
from millstream.wire.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from millstream.wire.messages.metadata import DescribeClusterRequest, DescribeClusterResponse
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.sending import client_of, list_groups, no_groups
from tests.waiting import SECONDS


def test_errors_that_may_pass_are_repeated(broker: FakeBroker) -> None:
    codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]

    def answer(request: Any) -> ListGroupsResponse:
        return ListGroupsResponse(error_code=codes.pop(0), groups=[])

    def check(response: ListGroupsResponse) -> None:
        raise_for_code(response.error_code)

    broker.handlers[ListGroupsRequest] = answer
    with client_of(broker) as client:
        calls = BlockingCalls(client)
        calls.call(AnyNode(), ListGroupsResponse, list_groups, Deadline(SECONDS), check)
    assert not codes


class ThirdAnswer(Deadline):
    """Is over when three answers have come, however long they take."""

    def __init__(self) -> None:
        super().__init__(SECONDS)
        self.answers = 0

    @property
    def remaining_s(self) -> float:
        return super().remaining_s if self.answers < 3 else 0.0


def test_a_deadline_ends_repeating_and_keeps_the_reason(broker: FakeBroker) -> None:
    deadline = ThirdAnswer()

    def check(response: ListGroupsResponse) -> None:
        deadline.answers += 1
        raise NetworkError("it is raining")

    with (
        client_of(broker) as client,
        pytest.raises(MillstreamTimeoutError, match=r"within 60 seconds: it is raining"),
    ):
        BlockingCalls(client).call(AnyNode(), ListGroupsResponse, list_groups, deadline, check)
    assert deadline.answers == 3


def find(node_id: int, port: int, code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key="g", node_id=node_id, host="127.0.0.1", port=port, error_code=code)]
    )


def test_coordinators_are_looked_up_once_and_again_when_wrong() -> None:
    with FakeBroker(1) as first, FakeBroker(2) as second, client_of(first) as client:
        first.handlers[FindCoordinatorRequest] = lambda request: find(2, second.port)
        second.handlers[ListGroupsRequest] = lambda request: no_groups()
        calls = BlockingCalls(client)
        for _ in range(3):
            calls.call(CoordinatorOf("g"), ListGroupsResponse, list_groups, Deadline(SECONDS))
        assert len(first.received(FindCoordinatorRequest)) == 1
        # The coordinator moves to the first broker; the second is gone.
        first.handlers[ListGroupsRequest] = lambda request: no_groups()
        first.handlers[FindCoordinatorRequest] = lambda request: find(1, first.port)
        second.close()
        calls.call(CoordinatorOf("g"), ListGroupsResponse, list_groups, Deadline(SECONDS))
        assert client.coordinators.known("g") == 1


def test_a_coordinator_that_is_not_there_yet(broker: FakeBroker) -> None:
    answers = [find(-1, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE), find(1, broker.port)]
    broker.handlers[FindCoordinatorRequest] = lambda request: answers.pop(0)
    with client_of(broker) as client:
        BlockingCalls(client).call(CoordinatorOf("g"), ListGroupsResponse, list_groups, Deadline(SECONDS))
    assert not answers


def test_a_node_by_its_id(broker: FakeBroker) -> None:
    broker.handlers[DescribeClusterRequest] = lambda request: DescribeClusterResponse(
        error_code=0, cluster_id="fake", brokers=[]
    )

    def build(version: int) -> DescribeClusterRequest:
        return DescribeClusterRequest(include_cluster_authorized_operations=False)

    with client_of(broker) as client:
        calls = BlockingCalls(client)
        # Not known yet: the call refreshes the metadata, and finds it then.
        response = calls.call(Node(1), DescribeClusterResponse, build, Deadline(SECONDS))
        assert response.cluster_id == "fake"
