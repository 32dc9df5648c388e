"""Blocking requests from a user's thread, retried as each error's action says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from millstream.client.backoff import Backoff
from millstream.client.chance import chance
from millstream.client.client import Client
from millstream.client.cluster import Cluster
from millstream.client.connections import Channel
from millstream.client.targets import Controller, CoordinatorOf, Node, Target
from millstream.errors import (
    Action,
    BrokerError,
    ClosedError,
    MillstreamError,
    MillstreamTimeoutError,
    NetworkError,
    NoBrokersAvailableError,
)
from millstream.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
T = TypeVar("T")


class Deadline:
    """A moment by which a call must be over, by a ``clock`` in seconds."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout_s = timeout_s
        self._clock = clock
        self._end = clock() + timeout_s

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._end - self._clock())

    @property
    def remaining_ms(self) -> int:
        return int(self.remaining_s * 1000)

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._end


class BlockingCalls:
    """Sends requests for threads other than the I/O thread, and waits for the answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._backoff = Backoff(client.config.retry_backoff_ms, client.config.retry_backoff_max_ms)

    def call(
        self,
        target: Target,
        response_type: type[R],
        build: Callable[[int], Request],
        deadline: Deadline,
        check: Callable[[R], None] | None = None,
    ) -> R:
        """Send, wait for the response, and return it once ``check`` accepts it.

        ``check`` raises the error that the response holds. A retriable error is handled as its action says
        (refresh the metadata, look the coordinator up again), and the request is sent again after a back-off
        until the deadline; other errors are raised.
        """

        def attempt() -> R:
            response = self._ask(target, response_type, build, deadline)
            if check is not None:
                check(response)
            return response

        return self.retry(attempt, deadline, target)

    def retry(self, attempt: Callable[[], T], deadline: Deadline, target: Target | None = None) -> T:
        """Call ``attempt`` until it raises no retriable error; a time-out is raised from the last error."""
        self._client.io.check_may_wait()
        failures = 0
        while True:
            try:
                return attempt()
            except BrokerError as error:
                if not error.retriable:
                    raise
                failures += 1
                self._remedy(error, target)
                if not self.pause(failures, deadline):
                    raise self._timed_out(deadline, error) from error

    def refresh_metadata(
        self, topics: Iterable[str] | None, deadline: Deadline, *, create: bool = False
    ) -> Cluster:
        """Metadata of ``topics`` (None: all), requested after this call.

        ``create`` lets the broker create missing topics, if client and broker allow it.
        """
        self._client.io.check_may_wait()
        outcome: Future[None] = Future()
        wanted = None if topics is None else frozenset(topics)
        self._client.submit(
            lambda: self._client.metadata.refresh(
                wanted, lambda error: _resolve(outcome, None, error), create=create
            )
        )
        self._wait(outcome, deadline, self._client.metadata.last_error)
        return self._client.cluster

    def _ask(
        self, target: Target, response_type: type[R], build: Callable[[int], Request], deadline: Deadline
    ) -> R:
        outcome: Future[R] = Future()

        def failed(error: MillstreamError) -> None:
            _resolve(outcome, None, error)

        def send(node_id: int | None) -> None:
            self._client.send(
                node_id,
                response_type.api.request_type,
                build,
                lambda response: _resolve(outcome, response, None),
                failed,
                timeout_ms=max(1, min(deadline.remaining_ms, self._client.config.request_timeout_ms)),
                channel=Channel.COORDINATOR if isinstance(target, CoordinatorOf) else Channel.DATA,
            )

        self._client.submit(lambda: self._find(target, send, failed))
        return self._wait(outcome, deadline, None)

    def _find(
        self, target: Target, send: Callable[[int | None], None], failed: Callable[[MillstreamError], None]
    ) -> None:
        if isinstance(target, Node):
            send(target.node_id)
        elif isinstance(target, CoordinatorOf):
            self._client.coordinators.find(target.group_id, send, failed)
        elif isinstance(target, Controller):
            controller = self._client.cluster.controller
            send(None if controller is None else controller.node_id)
        else:
            send(None)

    def _remedy(self, error: BrokerError, target: Target | None) -> None:
        """Do what the error's action says before the next attempt."""
        client = self._client
        if isinstance(target, CoordinatorOf):
            group_id = target.group_id
            if error.action is Action.FIND_COORDINATOR or isinstance(error, NetworkError):
                client.submit(lambda: client.coordinators.forget(group_id))
        if error.action is Action.REFRESH_METADATA:
            client.submit(client.metadata.refresh_tracked)

    def pause(self, failures: int, deadline: Deadline) -> bool:
        """Wait out the back-off after ``failures``; False if the deadline comes first."""
        delay_s = self._backoff.delay_ms(failures, chance()) / 1000
        if delay_s >= deadline.remaining_s:
            return False
        if self._client.closing.wait(delay_s):
            raise ClosedError
        return True

    def _wait(self, outcome: Future[T], deadline: Deadline, error: MillstreamError | None) -> T:
        try:
            return outcome.result(deadline.remaining_s)
        except TimeoutError:
            if outcome.done():
                raise
            raise self._timed_out(deadline, self._client.metadata.last_error or error) from error

    def _timed_out(self, deadline: Deadline, error: MillstreamError | None) -> MillstreamTimeoutError:
        servers = ", ".join(map(str, self._client.config.bootstrap_servers))
        if not self._client.cluster.brokers and self._client.metrics.responses_received == 0:
            reason = f" ({error.detail})" if error and error.detail else ""
            return NoBrokersAvailableError(
                f"no broker answered at {servers} within {deadline.timeout_s:g} seconds{reason}: "
                "check the address, and that a broker is running there"
            )
        reason = f": {error}" if error else f": check that the brokers can be reached ({servers})"
        return MillstreamTimeoutError(
            f"the call did not finish within {deadline.timeout_s:g} seconds{reason}"
        )


def _resolve(outcome: Future[T], result: T | None, error: MillstreamError | None) -> None:
    if error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(result)  # type: ignore[arg-type]
