"""OffsetStore: commits in all the ways that a consumer has, and committed offsets. A pure core.

It shares its group's ``Membership``, and the driver's duties are the same: after every call, and when
``next_wake_ms`` has come, ``poll`` this core for requests and then take its events. As commits may need the
coordinator, or tell the membership that it is not a member any more, poll the membership after this core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from millstream.config import ConsumerConfig
from millstream.consumer.offsets.commits import OffsetCommits
from millstream.consumer.offsets.fetches import CommittedFetches
from millstream.consumer.offsets.values import CommitDone, CommittingMember, Event, Offsets
from millstream.consumer.sends import Send, no_jitter, retry_delay
from millstream.model import TopicPartition
from millstream.wire.messages.group_offsets import OffsetCommitResponse, OffsetFetchResponse
from millstream.wire.schema import Response


class OffsetStore:
    """The group's committed offsets, as one of its members sees them."""

    def __init__(
        self, config: ConsumerConfig, group: CommittingMember, chance: Callable[[], float] = no_jitter
    ) -> None:
        """``config`` has a group_id. ``chance`` gives numbers from 0 to 1, for back-offs."""
        assert config.group_id is not None, "only a group has committed offsets"
        self._config = config
        delay_ms = retry_delay(config, chance)
        self._commits = OffsetCommits(group, delay_ms, config.request_timeout_ms)
        self._fetches = CommittedFetches(group, config.group_id, delay_ms, config.request_timeout_ms)
        self._last_token = 0
        self._auto_id: int | None = None
        self.auto_commit_at_ms = 0
        """When offsets are to be committed automatically, in the poll() then or after."""

    # ---- committing ----

    def commit(self, offsets: Offsets, deadline_ms: int) -> int:
        """Commit, and retry until it is stored, refused or too late. Ends with CommitDone."""
        return self._commits.make(offsets, deadline_ms, repeats=True)

    def commit_async(self, offsets: Offsets, now_ms: int) -> int:
        """Commit once. Ends with CommitDone; after RetriableCommitFailedError the caller may repeat it."""
        return self._commits.make(offsets, now_ms + self._config.default_api_timeout_ms, repeats=False)

    # ---- committing automatically ----

    def auto_commit_if_due(self, positions: Callable[[], Offsets], now_ms: int) -> None:
        """Call this in poll(), when all records returned before have been processed."""
        if not self._config.enable_auto_commit or now_ms < self.auto_commit_at_ms:
            return
        self.auto_commit_at_ms = now_ms + self._config.auto_commit_interval_ms
        offsets = positions()
        if offsets and self._auto_id is None:
            deadline_ms = now_ms + self._config.default_api_timeout_ms
            self._auto_id = self._commits.make(offsets, deadline_ms, repeats=False, automatic=True)

    def auto_commit_now(self, positions: Callable[[], Offsets], deadline_ms: int) -> int | None:
        """Call this before on_revoked and at close; wait for CommitDone. None when there is nothing to do."""
        offsets = positions() if self._config.enable_auto_commit else {}
        if not offsets:
            return None
        return self._commits.make(offsets, deadline_ms, repeats=True, automatic=True)

    def partitions_assigned(self, now_ms: int) -> None:
        """A new assignment restarts the interval."""
        self.auto_commit_at_ms = now_ms + self._config.auto_commit_interval_ms

    # ---- reading ----

    def fetch_committed(self, partitions: Iterable[TopicPartition], deadline_ms: int) -> int:
        """Read the committed offsets. Ends with CommittedFetched."""
        return self._fetches.ask(partitions, deadline_ms)

    # ---- requests and answers ----

    def poll(self, now_ms: int) -> list[Send]:
        """The requests to send now, in this order: commits first, so that what follows reads them."""
        return self._commits.due(now_ms, self._new_token) + self._fetches.due(now_ms, self._new_token)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When ``poll`` has something to do; None: never. The automatic commit is for poll() to begin."""
        moments = (self._commits.next_wake_ms(), self._fetches.next_wake_ms())
        wake_ms = min((moment for moment in moments if moment is not None), default=None)
        return None if wake_ms is None else max(now_ms, wake_ms)

    def receive(self, token: int, response: Response, now_ms: int) -> None:
        """The answer to a request."""
        if not self._commits.receive(token, cast(OffsetCommitResponse, response), now_ms):
            self._fetches.receive(token, cast(OffsetFetchResponse, response), now_ms)

    def failed(self, token: int, error: Exception, now_ms: int) -> None:
        """A request got no answer: it may or may not have been carried out."""
        if not self._commits.failed(token, error, now_ms):
            self._fetches.failed(token, error, now_ms)

    def take_events(self, now_ms: int) -> list[Event]:
        """What has ended since the last call."""
        events = self._commits.take_events() + self._fetches.take_events()
        for event in events:
            if isinstance(event, CommitDone) and event.commit_id == self._auto_id:
                self._auto_id = None
                if event.error is not None and event.error.retriable:
                    self.auto_commit_at_ms = now_ms + self._config.retry_backoff_ms
        return events

    def _new_token(self) -> int:
        self._last_token += 1
        return self._last_token
