"""Membership: the client side of the classic group protocol, as a pure core.

A driver feeds a ``Membership`` with what happens (answers, failures, the user's calls, the time) and does
what it says. After every call, and when ``next_wake_ms`` has come: ``poll`` for requests to send, then
``take_events`` for what has happened. Events come in the order in which things happened.

The driver's duties:

- Requests to ``CoordinatorOf`` go to ``coordinator`` in the order given, on a connection of its own: a
  JoinGroup may stay there for minutes, and a fetch in front of a heartbeat would delay it.
- Each request ends with one ``receive`` or one ``failed``: on a broken connection, after ``timeout_ms``
  (close the connection then), or when ``build`` or the encoding raises.
- ``user_polled(waiting=True)`` when poll() begins to wait, ``user_polled()`` when it runs the user's code or
  returns. ``callbacks_done`` after the callbacks of each event, also when they raise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, cast

from millstream.config import ConsumerConfig
from millstream.consumer.assignors.base import ClusterView
from millstream.consumer.membership import responses, views
from millstream.consumer.membership.outbox import Outbox, RequestKind
from millstream.consumer.membership.phases import COMMITTING, JOINED, MemberPhase
from millstream.consumer.membership.reactions import is_retriable
from millstream.consumer.membership.state import MemberState, WantedTopics
from millstream.consumer.membership.values import (
    CoordinatorNode,
    Event,
    GroupMetadata,
    TopicsNeeded,
    Waiting,
)
from millstream.consumer.sends import Send, no_jitter
from millstream.errors import Action, BrokerError, ErrorCode, MillstreamError
from millstream.model import TopicPartition
from millstream.wire.messages.group_admin import DescribeGroupsResponse
from millstream.wire.messages.groups import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from millstream.wire.schema import Response

_POLL_MORE_OFTEN: Final = "raise it, or handle fewer records at a time (max_poll_records)"


class Membership:
    """One member of one group, from the first subscription to the end."""

    def __init__(self, config: ConsumerConfig, chance: Callable[[], float] = no_jitter) -> None:
        """``config`` has a group_id. ``chance`` gives numbers from 0 to 1, for back-offs."""
        self._config = config
        self._state = MemberState(config, chance)
        self._outbox = Outbox(self._state)
        self._topics_asked = self._topics_are_fresh = False

    # ---- views ----

    @property
    def phase(self) -> MemberPhase:
        return self._state.phase

    @property
    def metadata(self) -> GroupMetadata:
        """Who this member is at the moment."""
        return self._state.who

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are owned, with those being given up until their callback has ended."""
        return self._state.ownership.owned

    @property
    def coordinator(self) -> CoordinatorNode | None:
        return self._state.lookup.node

    @property
    def error(self) -> MillstreamError | None:
        """Why the group refuses this member, until it has been raised."""
        return self._state.error

    @property
    def watched_topics(self) -> frozenset[str]:
        """The topics whose metadata must be kept fresh: the member's own, and for a leader the group's."""
        own = self._state.wanted.topics if self._state.wanted is not None else frozenset[str]()
        return own.union(self._state.group_members.topics) if self._state.group_members is not None else own

    @property
    def is_closed(self) -> bool:
        """After ``close``: whether nothing is left to be done, or there is no coordinator to do it with."""
        state = self._state
        return state.phase is MemberPhase.CLOSED and (not state.leaves.pending or state.lookup.is_failing)

    def waiting(self) -> Waiting:
        """What this member waits for, for ``diagnose``."""
        return views.waiting(self._state)

    def commit_identity(self) -> views.CommitIdentity:
        """The identity to commit with now; raises why that is not possible."""
        return views.commit_identity(self._state)

    # ---- the user's calls ----

    def set_subscription(
        self, topics: Collection[str], *, accepts: Callable[[str], bool] | None = None
    ) -> None:
        """Subscribe to ``topics``. ``accepts`` says which others a pattern matches as well."""
        state = self._state
        assert state.phase is not MemberPhase.CLOSED, "the member has left"
        was_subscribed = state.wanted is not None
        state.wanted = WantedTopics(frozenset(topics), accepts)
        if not was_subscribed:
            state.may_go, state.rejoin_reason = False, None
        elif state.phase in JOINED and state.wanted.topics != state.joined_topics:
            state.request_rejoin("the subscription has changed")

    def unsubscribe(self, now_ms: int) -> None:
        """Leave the group."""
        self._give_up("the consumer unsubscribed", now_ms, now_ms + self._config.session_timeout_ms)

    def close(self, now_ms: int, deadline_ms: int) -> None:
        """Leave and end. Commit first. Go on polling until ``is_closed``, or until the deadline."""
        self._state.closing = True
        # LeaveGroup is sent even without time to wait for the answer.
        self._give_up("the consumer is being closed", now_ms, max(deadline_ms, now_ms + 1000))

    def _give_up(self, reason: str, now_ms: int, deadline_ms: int) -> None:
        state = self._state
        state.leave_reason, state.leave_deadline_ms = reason, deadline_ms
        if state.phase is MemberPhase.LEAVING or (state.phase is MemberPhase.FAILED and not state.closing):
            state.wanted = None
        elif state.phase is not MemberPhase.CLOSED:
            state.give_up(now_ms)

    def user_polled(self, now_ms: int, *, waiting: bool = False) -> None:
        """The user is in poll(): ``waiting`` there, ready for callbacks, or about to be busy elsewhere."""
        self._state.polled_ms, self._state.is_in_poll = now_ms, waiting
        self._state.may_go = True

    def callbacks_done(self, now_ms: int) -> None:
        """The callbacks for the oldest Revoke, Lost or Assigned event have run, on the user's thread."""
        state = self._state
        state.ownership.done()
        state.may_go = True
        if not state.ownership.idle:
            return
        if state.phase is MemberPhase.PREPARING:
            state.join(now_ms)
        elif state.phase is MemberPhase.SETTLING:
            responses.go_on_settling(state, now_ms)
        elif state.phase is MemberPhase.LEAVING:
            state.go_on_leaving(now_ms)

    def error_raised(self, now_ms: int) -> None:
        """The error was raised: the next poll() tries again, unless the error is fatal."""
        state = self._state
        if state.phase is not MemberPhase.FAILED:
            return
        if isinstance(state.error, BrokerError) and state.error.action is Action.FATAL:
            return
        state.error = None
        state.may_go = state.is_in_poll = False
        state.move_to(MemberPhase.UNJOINED, now_ms)

    def request_rejoin(self, reason: str) -> None:
        """Rejoin in the next poll(), for a reason of the user's own, unless a rebalance is under way."""
        if self._state.phase is MemberPhase.STABLE:
            self._state.request_rejoin(reason)

    # ---- the driver's news ----

    def update_cluster(self, cluster: ClusterView, looked_up: Collection[str], now_ms: int) -> None:
        """New metadata. ``looked_up`` are the topics that it speaks for, whether they exist or not."""
        state = self._state
        state.cluster, state.looked_up = cluster, frozenset(looked_up)
        if state.phase is MemberPhase.ASSIGNING and responses.has_metadata(state):
            responses.assign(state, now_ms)
        elif state.phase in (MemberPhase.SYNCING, MemberPhase.SETTLING, MemberPhase.STABLE):
            responses.watch_metadata(state)

    def topics_refreshed(self) -> None:
        """All topics are known as they are now: the answer to TopicsNeeded."""
        self._topics_asked, self._topics_are_fresh = False, True

    def need_coordinator(self) -> None:
        """Look for the coordinator, also while there is nothing to join: commits need it."""
        self._state.lookup.wanted = True

    def coordinator_lost(self, reason: str, now_ms: int) -> None:
        """It does not answer, or says that it is not the coordinator any more."""
        self._state.coordinator_lost(reason, now_ms)

    def commit_refused(self, code: int, who: GroupMetadata, now_ms: int) -> None:
        """The coordinator refused a commit because of ``who`` made it; old news when that has changed."""
        if who == self._state.who and self._state.phase in COMMITTING:
            responses.commit_refused(self._state, code, now_ms)

    def take_events(self) -> list[Event]:
        """What has happened since the last call. Everything in it must be handled, in order."""
        events = self._state.events[:]
        self._state.events.clear()
        return events

    # ---- requests and answers ----

    def poll(self, now_ms: int) -> list[Send]:
        """The requests to send now."""
        state = self._state
        self._expire(now_ms)
        # Nothing is given up for a rebalance while there is no coordinator to join at.
        if state.lookup.node is not None and state.wants_to_begin and self._knows_topics():
            self._topics_are_fresh = False
            state.begin(state.rejoin_reason or "", now_ms)
        return self._outbox.due(now_ms)

    def _knows_topics(self) -> bool:
        """Whether a join may begin. With a pattern, all topics are asked for before, as in Kafka.

        Otherwise each member would find a new topic on its own, some time later, and rejoin for it.
        """
        state = self._state
        if state.wanted is None or state.wanted.accepts is None or self._topics_are_fresh:
            return True
        if not self._topics_asked:
            self._topics_asked = True
            state.events.append(TopicsNeeded())
        return False

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When ``poll`` has something to do even if nothing else happens; None: never."""
        state = self._state
        if state.lookup.node is not None and state.wants_to_begin and not self._topics_asked:
            return now_ms
        moves_until_ms = state.moves_until_ms if state.phase is MemberPhase.STABLE else None
        deadlines = (state.poll_deadline_ms, state.lease_deadline_ms, moves_until_ms)
        moments = (*deadlines, self._outbox.next_wake_ms())
        wake_ms = min((moment for moment in moments if moment is not None), default=None)
        return None if wake_ms is None else max(now_ms, wake_ms)

    def receive(self, token: int, response: Response, now_ms: int) -> None:
        """The answer to a request. Answers that have been overtaken by events are ignored."""
        state = self._state
        kind = self._outbox.take(token)
        if kind is RequestKind.FIND:
            responses.coordinator_answered(state, cast(FindCoordinatorResponse, response), now_ms)
        elif kind is RequestKind.LEAVE:
            responses.leave_answered(state, cast(LeaveGroupResponse, response), now_ms)
        elif kind is RequestKind.HEARTBEAT and token == state.heartbeats.in_flight:
            responses.heartbeat_answered(state, cast(HeartbeatResponse, response), now_ms)
        elif kind is RequestKind.SYNC and token == state.exchange:
            responses.sync_answered(state, cast(SyncGroupResponse, response), now_ms)
        elif kind is RequestKind.JOIN and token == state.exchange:
            responses.join_answered(state, cast(JoinGroupResponse, response), now_ms)
        elif kind is RequestKind.DESCRIBE and token == state.review:
            responses.review_answered(state, cast(DescribeGroupsResponse, response), now_ms)
        elif kind is RequestKind.JOIN:
            self._give_back_abandoned(cast(JoinGroupResponse, response), now_ms)

    def _give_back_abandoned(self, response: JoinGroupResponse, now_ms: int) -> None:
        """An abandoned join has ended: give up the member id that it brings."""
        state = self._state
        is_news = response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
        if is_news and not state.is_static and response.member_id != state.who.member_id:
            deadline_ms = now_ms + self._config.session_timeout_ms
            state.leaves.add(response.member_id, "the join was abandoned", deadline_ms)

    def failed(self, token: int, error: Exception, now_ms: int) -> None:
        """A request got no answer: it may or may not have been carried out."""
        state = self._state
        kind = self._outbox.take(token)
        if kind is None:
            return
        if kind is RequestKind.FIND:
            state.lookup.failed(str(error), now_ms)
        elif kind is RequestKind.LEAVE:
            state.leaves.failed(now_ms)
        elif kind is RequestKind.HEARTBEAT and token == state.heartbeats.in_flight:
            state.heartbeats.failed(now_ms)
        elif kind is RequestKind.DESCRIBE and token == state.review:
            state.review = None
            state.retry_later(now_ms)
        elif token == state.exchange:
            # Both can be repeated: the coordinator knows the member by its id and answers the same again.
            state.retry_later(now_ms)
        if is_retriable(error):
            state.coordinator_lost(str(error) or type(error).__name__, now_ms)
        elif kind is RequestKind.LEAVE:
            state.leaves.left()
        elif kind is RequestKind.DESCRIBE:
            state.must_review = False
        else:
            known = error if isinstance(error, MillstreamError) else MillstreamError(repr(error))
            state.fail(known, now_ms)

    def _expire(self, now_ms: int) -> None:
        """Take a user who does not poll out of the group; give up when no heartbeat has been answered."""
        state, config = self._state, self._config
        is_stable = state.phase is MemberPhase.STABLE
        if is_stable and state.moves_until_ms is not None and now_ms >= state.moves_until_ms:
            state.moves_until_ms = None
            state.request_rejoin("partitions that were to move have no owner")
        deadline_ms = state.poll_deadline_ms
        if deadline_ms is not None and now_ms >= deadline_ms:
            reason = (
                f"poll() was not called for {now_ms - state.polled_ms} ms, and max_poll_interval_ms is "
                f"{config.max_poll_interval_ms}: {_POLL_MORE_OFTEN}"
            )
            self._leave_unpolled(reason, now_ms)
        deadline_ms = state.lease_deadline_ms
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._lease_ended(now_ms)

    def _leave_unpolled(self, reason: str, now_ms: int) -> None:
        """A static member only falls silent: the coordinator waits for the end of its session (KIP-345)."""
        state = self._state
        end_ms = now_ms + self._config.session_timeout_ms
        state.give_back_member_id("poll() was not called within max.poll.interval.ms", end_ms)
        state.lose(reason, now_ms, keep_member_id=False)
        state.may_go = False

    def _lease_ended(self, now_ms: int) -> None:
        """The partitions may have another owner soon. After a silence, the member id may still be good."""
        state, config = self._state, self._config
        if now_ms < state.heartbeats.session_until_ms:
            # The others need not wait for the end of the session, which would be next.
            reason = (
                f"poll() was not called while a rebalance waited for it, and max_poll_interval_ms is "
                f"{config.max_poll_interval_ms}: {_POLL_MORE_OFTEN}"
            )
            self._leave_unpolled(reason, now_ms)
            return
        limit = f"session_timeout_ms ({config.session_timeout_ms})"
        state.lose(f"the coordinator has not answered for {limit}", now_ms, keep_member_id=True)
        state.coordinator_lost("no heartbeat was answered", now_ms)
