"""What goes into the coordinator and what comes out: moments, callers, tickets, replies, records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from millstream.broker.groups.state.records import GroupRecord
from millstream.errors import ErrorCode
from millstream.wire.schema import Api, Response

Ticket = Any
"""Whatever the driver needs to find a request again. The core keeps it and hands it back, nothing else."""


class Moment(NamedTuple):
    """One instant on two clocks. Deadlines count on the first, which never jumps; what is stored for later
    processes to read (commit times, retention) counts on the second."""

    now_ms: int
    """Monotonic milliseconds."""
    epoch_ms: int
    """Milliseconds since 1970, as the wall clock has them."""


class Caller(NamedTuple):
    """Who sent a request, and in which version of its API."""

    client_id: str
    client_host: str
    """As tools show it: Kafka writes a slash in front of the address."""
    version: int


class Parked(NamedTuple):
    """A request that waits for its answer, and the version that the answer must suit."""

    ticket: Ticket
    version: int


class Reply(NamedTuple):
    """The answer to one request. Each ticket gets exactly one."""

    ticket: Ticket
    response: Response


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call brought about; the ``coordinator`` module says what the driver does with it."""

    replies: tuple[Reply, ...] = ()
    """Send these now: they promise nothing that ``records`` has yet to make durable."""
    records: tuple[GroupRecord, ...] = ()
    """Append these, in this order, and report ``token`` when their fate is known."""
    token: int | None = None
    """Names the write; None when there are no records."""


NOTHING: Final = Outcome()

Continuation = Callable[[int, "Effects"], None]
"""What happens when a write's fate is known: takes the error for clients (NONE: it is durable)."""


class Effects:
    """Gathers what one call brings about while it runs."""

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
        """Ask for records to be written; ``then`` runs once, whether that works or not."""
        self.records += records
        self.when_written(then)

    def when_written(self, then: Continuation) -> None:
        """Run ``then`` with the fate of everything that this call writes."""
        assert self.records, "a write without records would never be reported"
        self.continuations.append(then)


_M = TypeVar("_M", bound=Callable[..., None])


def answers(api: Api) -> Callable[[_M], _M]:
    """Mark the method ``(request, parked, caller, effects)`` that answers an API, for the coordinator."""

    def mark(method: _M) -> _M:
        method.api = api  # type: ignore[attr-defined]
        return method

    return mark


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
    """What clients are told when the log refused a write: the errors they know how to handle."""
    assert error != ErrorCode.NONE, "a failed append needs an error"
    return _ANSWER_FOR_APPEND_ERROR.get(ErrorCode(error), ErrorCode(error))
