"""One broker as a sequence sees it: its connections, the answers that are still to come, its names."""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from millstream.errors import CorruptMessage
from millstream.wire.frames import decode_response, encode_request
from millstream.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.wire.messages.group_admin import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.wire.messages.group_offsets import OffsetFetchRequest, OffsetFetchResponse
from millstream.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millstream.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from millstream.wire.schema import Request, Response
from tests.kafka.differential.names import Names
from tests.kafka.differential.values import Plain, Step, plain, request_of

PENDING: Final = "no answer"
CLOSED: Final = "the connection was closed"
_GROUPS: Final = ("g", "g0", "g1", "other")
"""What sequences call their groups."""
_SECONDS: Final = 20.0
_MEMBER_ID_REQUIRED: Final = 79
TOPIC: Final = 2
"""A topic among resources that have settings."""
_OWN: Final = 1
"""The source of a setting that a topic has of its own."""


@dataclass
class _Link:
    """A connection with at most one request under way."""

    sock: socket.socket
    waits_for: tuple[int, Step] | None = None
    received: bytes = b""
    is_closed: bool = False


class Side:
    """A broker during one run of one sequence."""

    def __init__(self, name: str, address: str, prefix: str) -> None:
        self.name = name
        self.names = Names(prefix)
        self.replies: dict[int, Response | str] = {}
        self._address = address
        self._links: dict[str, _Link] = {}
        self._spare = 0

    def close(self) -> None:
        for link in self._links.values():
            link.sock.close()

    def is_ready(self) -> bool:
        """Whether all can be served: Kafka's coordinator has to load, each group by itself, and to ask for
        producer ids.
        """
        found = self._call(FindCoordinatorRequest(key="any", key_type=0), 3, FindCoordinatorResponse)
        if found.error_code:
            return False
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        groups = DescribeGroupsRequest(groups=[self.names.prefix + name for name in _GROUPS])
        return not (
            any(group.error_code for group in self._call(groups, 0, DescribeGroupsResponse).groups)
            or self._call(ListGroupsRequest(), 4, ListGroupsResponse).error_code
            or self._call(asked, 2, InitProducerIdResponse).error_code
        )

    def send(self, index: int, step: Step) -> None:
        """Send a step's request on its connection, or on a spare one while that one waits for an answer."""
        link = self._link(step.on)
        if link.waits_for is not None:
            self._spare += 1
            link = self._link(f"spare {self._spare}")
        chunks = encode_request(request_of(step, self.names), step.version, index, step.on)
        link.waits_for = (index, step)
        link.sock.sendall(b"".join(bytes(chunk) for chunk in chunks))

    @property
    def sockets(self) -> dict[socket.socket, Side]:
        return {link.sock: self for link in self._links.values() if link.waits_for is not None}

    def receive(self, sock: socket.socket) -> None:
        """Take what has come on a connection; a whole answer goes to ``replies``."""
        link = next(each for each in self._links.values() if each.sock is sock)
        try:
            data = sock.recv(1 << 20)
        except ConnectionError:
            data = b""
        assert link.waits_for is not None
        index, step = link.waits_for
        if not data:
            self.replies[index] = CLOSED
            self._drop(link)
            return
        link.received += data
        size = int.from_bytes(link.received[:4], "big")
        if len(link.received) >= 4 + size:
            frame, link.received, link.waits_for = link.received[4 : 4 + size], b"", None
            self.replies[index] = self._take(step, frame)

    def learn(self, index: int, step: Step) -> None:
        """Remember what the broker has named in an answer."""
        reply = self.replies.get(index, PENDING)
        if not isinstance(reply, str):
            learn(step, reply, self.names)

    def plain_reply(self, index: int) -> Plain:
        """An answer as plain data, with the aliases that are known by now."""
        reply = self.replies.get(index, PENDING)
        return reply if isinstance(reply, str) else plain(reply, self.names)

    def _take(self, step: Step, frame: bytes) -> Response | str:
        try:
            _, response = decode_response(step.of.request_type, step.version, memoryview(frame))
        except CorruptMessage as error:
            return f"not readable: {error}"
        return _of_this_run(response, self.names.prefix)

    # --- between the steps

    def topics(self, names: list[str]) -> Plain:
        """What the broker says of topics, once it serves all their partitions; None before."""
        real = [self.names.resolve(name) for name in names]
        asked = [MetadataRequestTopic(name=name) for name in real]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        found = self._call(request, 12, MetadataResponse)
        for topic in found.topics:
            if not topic.error_code:
                assert topic.name is not None
                self.names.topic_is(topic.name, topic.topic_id)
                if not self._serves(topic.name, len(topic.partitions)):
                    return None
            elif self._serves(str(topic.name), 1):
                return None
        return sorted(
            (self.names.alias_of(str(each.name)), each.error_code, len(each.partitions))
            for each in found.topics
        )

    def own_settings(self, names: list[str]) -> Plain:
        """The settings that topics have of their own, as the broker sees them."""
        wanted = [
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=self.names.resolve(name), configuration_keys=None
            )
            for name in names
        ]
        found = self._call(DescribeConfigsRequest(resources=wanted), 1, DescribeConfigsResponse)
        return [
            (each.error_code, {one.name: one.value for one in each.configs if one.config_source == _OWN})
            for each in found.results
        ]

    def committed_topics(self, groups: list[str]) -> set[str]:
        """The topics of which one of these groups has a committed offset."""
        found: set[str] = set()
        for group in groups:
            request = OffsetFetchRequest(group_id=self.names.resolve(group), topics=None)
            answer = self._call(request, 7, OffsetFetchResponse)
            found.update(self.names.alias_of(each.name) for each in answer.topics)
        return found

    def group_state(self, group: str) -> str:
        request = DescribeGroupsRequest(groups=[self.names.resolve(group)])
        state: str = self._call(request, 0, DescribeGroupsResponse).groups[0].group_state
        return state

    def _serves(self, name: str, partitions: int) -> bool:
        wanted = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        found = self._call(request, 5, ListOffsetsResponse)
        return all(each.error_code == 0 for each in found.topics[0].partitions)

    def _call(self, request: Request, version: int, response_type: type[Any]) -> Any:
        link = self._link("between steps")
        chunks = encode_request(request, version, 0, "between steps")
        link.sock.sendall(b"".join(bytes(chunk) for chunk in chunks))
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            more = link.sock.recv(1 << 20)
            assert more, f"{self.name} closed the connection"
            data += more
        _, response = decode_response(type(request), version, memoryview(data)[4:])
        assert isinstance(response, response_type)
        return response

    def _link(self, name: str) -> _Link:
        link = self._links.get(name)
        if link is None:
            host, _, port = self._address.rpartition(":")
            sock = socket.create_connection((host, int(port)), timeout=_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = self._links[name] = _Link(sock)
        return link

    def _drop(self, link: _Link) -> None:
        link.sock.close()
        self._links = {name: each for name, each in self._links.items() if each is not link}


def gather(sides: list[Side], seconds: float) -> bool:
    """Take answers that have come, waiting for the first; returns whether any did."""
    sockets = {sock: side for each in sides for sock, side in each.sockets.items()}
    if not sockets:
        time.sleep(min(seconds, 0.01))
        return False
    ready, _, _ = select.select(list(sockets), [], [], seconds)
    for sock in ready:
        sockets[sock].receive(sock)
    return bool(ready)


def learn(step: Step, response: Any, names: Names) -> None:
    """Remember what the broker has named."""
    match step.api:
        case "JoinGroup":
            if response.member_id and response.error_code in (0, _MEMBER_ID_REQUIRED):
                names.joined(step.group, step.alias, response.member_id)
            if response.error_code == _MEMBER_ID_REQUIRED:
                names.pending.add(response.member_id)
            if response.error_code == 0:
                names.pending.discard(response.member_id)
                names.generations[step.group] = response.generation_id
                names.leaders[step.group] = response.leader
        case "InitProducerId":
            names.number_is("producer", step.alias, response.producer_id)
        case "Fetch":
            if response.session_id:
                names.number_is("session", step.alias, response.session_id)


def _of_this_run(response: Response, prefix: str) -> Response:
    """Leave out what other runs have made, where a reply lists all there is."""
    if isinstance(response, ListGroupsResponse):
        response.groups = [each for each in response.groups if each.group_id.startswith(prefix)]
    if isinstance(response, MetadataResponse):
        response.topics = [each for each in response.topics if (each.name or prefix).startswith(prefix)]
    return response
