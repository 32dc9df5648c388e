"""What goes into the coordinator and comes out of it: moments, callers, tickets, replies, records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from millstream.broker.groups.state.records import GroupRecord
from millstream.errors import ErrorCode
from millstream.wire.schema import Api, Request, Response

Ticket = Any
"""Any value by which the driver finds a request again. The core only keeps it and returns it."""


class Moment(NamedTuple):
    """One instant on two clocks. Deadlines use the first, which never jumps. What is stored (commit times,
    retention) uses the second."""

    now_ms: int
    """Monotonic milliseconds."""
    epoch_ms: int
    """Wall clock milliseconds since 1970."""


class Caller(NamedTuple):
    """The sender of a request, and the version of its API."""

    client_id: str
    client_host: str
    """As Kafka's tools show it, with a slash in front of the address."""
    version: int


class Parked(NamedTuple):
    """A request that waits for its answer, and the version of that answer."""

    ticket: Ticket
    version: int


class Reply(NamedTuple):
    """The answer to one request. Each ticket gets exactly one."""

    ticket: Ticket
    response: Response


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one call; the ``coordinator`` module says what the driver does with it."""

    replies: tuple[Reply, ...] = ()
    """Send these now: they do not depend on ``records``."""
    records: tuple[GroupRecord, ...] = ()
    """Append these in order, and report ``token`` when they are durable or have failed."""
    token: int | None = None
    """Identifies the write; None without records."""


NOTHING: Final = Outcome()

Continuation = Callable[[int, "Effects"], None]
"""Called when a write is durable or has failed, with the error for clients (NONE: it is durable)."""


class Effects:
    """Collects the replies and records of one call while it runs."""

    __slots__ = ("continuations", "moment", "records", "replies", "token")

    def __init__(self, moment: Moment, token: int) -> None:
        self.moment = moment
        self.token = token
        self.replies: list[Reply] = []
        self.records: list[GroupRecord] = []
        self.continuations: list[Continuation] = []

    def reply(self, to: Parked, response: Response) -> None:
        self.replies.append(Reply(to.ticket, response))

    def write(self, records: Sequence[GroupRecord], then: Continuation) -> None:
        """Have records written; ``then`` runs once, when they are durable or have failed."""
        self.records += records
        self.when_written(then)

    def when_written(self, then: Continuation) -> None:
        """Run ``then`` when all that this call writes is durable or has failed."""
        assert self.records, "a write without records would never be reported"
        self.continuations.append(then)


_M = TypeVar("_M", bound=Callable[..., None])
Refusal = Callable[[Any, int, int], Response]
"""``(request, version, error)`` to the response that refuses the whole request."""
_REFUSALS: Final[dict[Api, Refusal]] = {}


def answers(api: Api, refusal: Refusal) -> Callable[[_M], _M]:
    """Mark the method ``(request, parked, caller, effects)`` that answers an API, for the coordinator.

    ``refusal`` builds the response to a request that the coordinator cannot take at all.
    """

    def mark(method: _M) -> _M:
        method.api = api  # type: ignore[attr-defined]
        _REFUSALS[api] = refusal
        return method

    return mark


def error_response(request: Request, version: int, error: int) -> Response:
    """Return the response that refuses a request as a whole."""
    return _REFUSALS[request.api](request, version, error)


_ANSWER_FOR_APPEND_ERROR: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def answer_for_append_error(error: int) -> int:
    """Return the error for clients when the log refused a write: one that they can handle."""
    assert error != ErrorCode.NONE, "a failed append needs an error"
    return _ANSWER_FOR_APPEND_ERROR.get(ErrorCode(error), ErrorCode(error))
