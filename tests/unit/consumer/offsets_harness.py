"""A membership with its committed offsets, stepped by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from millstream.consumer.offsets.core import OffsetStore
from millstream.consumer.offsets.values import CommitDone, CommittedFetched, Event
from millstream.consumer.sends import Send
from millstream.errors import ErrorCode
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from millstream.wire.schema import Response
from tests.unit.consumer.configs import config
from tests.unit.consumer.group_harness import Hand, partitions, settings

E = TypeVar("E")
SOON_MS = 60_000


def offsets(**values: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """``offsets(t0=5)``: partition 0 of topic t at 5."""
    return {TopicPartition(name[:-1], int(name[-1])): OffsetAndMetadata(at) for name, at in values.items()}


class Store(Hand):
    """A hand that also plays with commits; a member of generation 1 that owns t-0 and t-1, if it joins."""

    def __init__(self, *, joined: bool = True, cooperative: bool = False, **changes: Any) -> None:
        name = "cooperative-sticky" if cooperative else "range"
        super().__init__(settings(name))
        self.protocol = name
        self.store = OffsetStore(config(**changes), self.membership)
        self.stored: list[Event] = []
        self.store_sends: list[Send] = []
        if joined:
            self.settle("t-0", "t-1", protocol=name)
        else:
            self.membership.unsubscribe(self.now_ms)

    def step(self) -> None:
        if hasattr(self, "store"):
            self.store_sends += self.store.poll(self.now_ms)
        super().step()
        if hasattr(self, "store"):
            self.stored += self.store.take_events(self.now_ms)

    def commit(self, **values: int) -> int:
        commit_id = self.store.commit(offsets(**values), self.now_ms + SOON_MS)
        self.step()
        return commit_id

    def commit_async(self, **values: int) -> int:
        commit_id = self.store.commit_async(offsets(**values), self.now_ms)
        self.step()
        return commit_id

    def fetch(self, *names: str) -> int:
        fetch_id = self.store.fetch_committed(partitions(*names), self.now_ms + SOON_MS)
        self.step()
        return fetch_id

    def request(self, version: int = 9) -> Any:
        """The oldest request that waits."""
        return self.store_sends[0].build(version)

    def answer_store(self, response: Response) -> Any:
        send = self.store_sends.pop(0)
        self.store.receive(send.token, response, self.now_ms)
        self.step()
        return send.build(send.request_type.api.max_version)

    def fail_store(self, error: Exception) -> None:
        self.store.failed(self.store_sends.pop(0).token, error, self.now_ms)
        self.step()

    def committed(self, code: int = ErrorCode.NONE, **codes: int) -> OffsetCommitRequest:
        """Answer the oldest commit: with one code for all, or with one for each that is named."""
        request = self.request()
        assert isinstance(request, OffsetCommitRequest)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(f"{topic.name}{each.partition_index}", code),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        self.answer_store(OffsetCommitResponse(topics=topics))
        return request

    def fetched(self, code: int = ErrorCode.NONE, **found: int) -> OffsetFetchRequest:
        """Answer the oldest fetch: ``t0=5`` is an offset, ``t0=-88`` is error 88, -1 is nothing."""
        topics: dict[str, list[OffsetFetchResponsePartitions]] = {}
        for name, value in found.items():
            topics.setdefault(name[:-1], []).append(
                OffsetFetchResponsePartitions(
                    partition_index=int(name[-1]),
                    committed_offset=max(value, -1),
                    committed_leader_epoch=4 if value > 0 else -1,
                    metadata="note" if value > 0 else "",
                    error_code=-value if value < -1 else 0,
                )
            )
        group = OffsetFetchResponseGroup(
            group_id="g",
            error_code=code,
            topics=[OffsetFetchResponseTopics(name=n, partitions=p) for n, p in topics.items()],
        )
        request: OffsetFetchRequest = self.answer_store(OffsetFetchResponse(groups=[group]))
        return request

    def refind(self) -> None:
        """Look for the coordinator again after it was lost."""
        self.after(100)
        self.find()

    def done(self) -> CommitDone:
        """The only commit that has ended since the last look."""
        (event,) = self.stored
        self.stored.clear()
        assert isinstance(event, CommitDone)
        return event

    def answered(self) -> CommittedFetched:
        (event,) = self.stored
        self.stored.clear()
        assert isinstance(event, CommittedFetched)
        return event


def committed_in(request: OffsetCommitRequest) -> Mapping[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in request.topics
        for each in topic.partitions
    }
