"""Members of a group for tests: consumers that poll on threads or in processes of their own, and can be told
to do something in between.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from millstream.consumer import Consumer, RebalanceListener, Record
from millstream.errors import WakeupError
from millstream.model import TopicPartition
from tests.waiting import SECONDS, until

ROOT = Path(__file__).parents[2]
QUICK: Mapping[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 30_000,
    "heartbeat_interval_ms": 100,
    "fetch_max_wait_ms": 200,
    "metadata_max_age_ms": 60_000,
}
"""Settings of members that notice a rebalance soon, and keep their place though the machine stands still for
a while. What a test is about it sets by itself."""

Settings = dict[str, Any]
T = TypeVar("T")
Partitions = frozenset[TopicPartition]


def read(consumer: Consumer, count: int) -> list[Record]:
    """Poll until there are exactly so many records."""
    records: list[Record] = []

    def poll() -> bool:
        records.extend(consumer.poll(0.1, max_records=count - len(records)))
        return len(records) == count

    until(poll, f"{count} records")
    return records


def read_offsets(consumer: Consumer, count: int) -> list[int]:
    """Poll until there are exactly so many records; returns their offsets."""
    return [record.offset for record in read(consumer, count)]


def poll_until(consumer: Consumer, condition: Callable[[], object], what: str) -> None:
    """Poll until a condition holds; no records must come meanwhile."""

    def poll() -> bool:
        assert not (records := consumer.poll(0.05)), records
        return bool(condition())

    until(poll, what)


def partitions_of(topic: str, *numbers: int) -> Partitions:
    return frozenset(TopicPartition(topic, number) for number in numbers)


@dataclass(frozen=True)
class Happening:
    """One callback of a rebalance listener. ``at``: monotonic seconds, the same for all processes."""

    what: str
    partitions: Partitions
    generation: int
    at: float


class Recorder(RebalanceListener):
    """Writes down what the listener is told, and passes it on to a test's own listener."""

    def __init__(self, inner: RebalanceListener | None = None) -> None:
        self.happenings: list[Happening] = []
        self._inner = inner or RebalanceListener()

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("assigned", consumer, partitions)
        self._inner.on_assigned(consumer, partitions)

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("revoked", consumer, partitions)
        self._inner.on_revoked(consumer, partitions)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("lost", consumer, partitions)
        self._inner.on_lost(consumer, partitions)

    def _note(self, what: str, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        generation = consumer.group_metadata().generation_id
        self.happenings.append(Happening(what, frozenset(partitions), generation, time.monotonic()))

    @property
    def told(self) -> list[tuple[str, Partitions]]:
        """What was told, without the circumstances, and without assignments that bring nothing."""
        return [(each.what, each.partitions) for each in self.happenings if each.partitions]


class Owner(Protocol):
    """Anybody who may own partitions, wherever it runs."""

    @property
    def owned(self) -> Partitions: ...

    @property
    def generation(self) -> int: ...


class Member:
    """A consumer that polls on a thread of its own until it is closed.

    ``owned``, ``generation`` and ``records`` are as of its last poll; what it raises, ``close`` raises.
    """

    def __init__(
        self,
        servers: str,
        group_id: str,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
        **settings: object,
    ) -> None:
        self.recorder = Recorder(listener)
        self.records: list[Record] = []
        self.owned: Partitions = frozenset()
        self.generation = -1
        self.failure: Exception | None = None
        self._settings = {**QUICK, "bootstrap_servers": servers, "group_id": group_id, **settings}
        self._topics, self._pattern = topics, pattern
        self._calls: queue.SimpleQueue[tuple[Callable[[Consumer], Any], Future[Any]]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._consumer: Consumer | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def told(self) -> list[tuple[str, Partitions]]:
        return self.recorder.told

    @property
    def happenings(self) -> list[Happening]:
        return self.recorder.happenings

    def call(self, work: Callable[[Consumer], T], seconds: float = SECONDS) -> T:
        """Have the member do this between two polls, and wait for what comes of it."""
        return self.begin(work).result(seconds)

    def begin(self, work: Callable[[Consumer], T]) -> Future[T]:
        """Have the member do this between two polls."""
        assert self.failure is None, self.failure
        outcome: Future[T] = Future()
        self._calls.put((work, outcome))
        return outcome

    def close(self) -> None:
        """Leave the group, and end."""
        self._stopping.set()
        with contextlib.suppress(AttributeError):
            self._consumer.wakeup()  # type: ignore[union-attr]  # there may be none yet, or no more
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "the member does not end"
        if self.failure is not None:
            raise self.failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(Exception):
                self.close()

    def _run(self) -> None:
        try:
            with Consumer(self._settings) as consumer:
                self._consumer = consumer
                if self._pattern is not None:
                    consumer.subscribe(pattern=self._pattern, listener=self.recorder)
                else:
                    consumer.subscribe(self._topics, listener=self.recorder)
                while not self._stopping.is_set():
                    self._answer_calls(consumer)
                    self._poll(consumer)
        except Exception as error:  # noqa: BLE001 - raised again in close
            self.failure = error
        finally:
            self.owned = frozenset()

    def _poll(self, consumer: Consumer) -> None:
        with contextlib.suppress(WakeupError):
            self.records += consumer.poll(0.05)
        self.owned = consumer.assignment()
        self.generation = consumer.group_metadata().generation_id

    def _answer_calls(self, consumer: Consumer) -> None:
        while not self._calls.empty():
            work, outcome = self._calls.get()
            try:
                outcome.set_result(work(consumer))
            except Exception as error:  # noqa: BLE001 - raised again in call
                outcome.set_exception(error)


class MemberProcess:
    """A consumer in a process of its own, which does what it is told: see ``member_process``."""

    def __init__(
        self, servers: str, group_id: str, topics: Sequence[str], *, polling: bool = False, **settings: object
    ) -> None:
        """``polling``: poll all the time, rather than when told so."""
        self.happenings: list[Happening] = []
        self.records: list[tuple[str, int, int]] = []
        """Topic, partition and offset of what it reported while polling by itself."""
        self.owned: Partitions = frozenset()
        self.generation = -1
        self._replies: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.member_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()
        order = {**QUICK, "bootstrap_servers": servers, "group_id": group_id, **settings}
        self._write({"settings": order, "topics": list(topics), "polling": polling})

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def told(self) -> list[tuple[str, Partitions]]:
        return [(each.what, each.partitions) for each in self.happenings if each.partitions]

    def ask(self, what: str, **arguments: object) -> Any:
        """Have it do something, and return its answer; an error is an AssertionError here."""
        self._write({"do": what, **arguments})
        until(lambda: not self._replies.empty() or not self._listening.is_alive(), f"an answer to {what}")
        assert not self._replies.empty(), f"asked to {what}, it ended with {self._process.wait()}"
        reply = self._replies.get()
        assert "error" not in reply, reply
        return reply["value"]

    def read(self, count: int) -> list[int]:
        """Poll until there are exactly so many more records; returns their offsets."""
        return [offset for _, _, offset in self.ask("read", count=count)]

    def kill(self) -> None:
        """SIGKILL: it cannot say good-bye."""
        self._process.kill()
        self._end()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait_for_end(self) -> int:
        """Wait until it has ended by itself; returns its exit code."""
        code = self._process.wait(SECONDS)
        self._end()
        return code

    def close(self) -> None:
        """Have it leave the group and end."""
        self._write({"do": "close"})
        assert self.wait_for_end() == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(SECONDS)
        self._listening.join(SECONDS)
        self.owned = frozenset()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _write(self, order: Mapping[str, object]) -> None:
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None, "it is a pipe"
        for line in self._process.stdout:
            self._take(json.loads(line))

    def _take(self, report: dict[str, Any]) -> None:
        if "value" in report or "error" in report:
            self._replies.put(report)
            return
        if "what" in report:
            partitions = _partitions(report["partitions"])
            self.happenings.append(Happening(report["what"], partitions, report["generation"], report["at"]))
        self.records += [(topic, partition, offset) for topic, partition, offset in report.get("records", ())]
        if "owned" in report:
            self.owned, self.generation = _partitions(report["owned"]), report["generation"]


def _partitions(pairs: Iterable[tuple[str, int]]) -> Partitions:
    return frozenset(TopicPartition(topic, number) for topic, number in pairs)


def is_shared(partitions: Partitions, members: Iterable[Owner]) -> bool:
    """Whether each partition has exactly one owner, and all members are of the same generation."""
    everybody = list(members)
    owned = [partition for member in everybody for partition in member.owned]
    return (
        sorted(owned) == sorted(partitions)
        and len({member.generation for member in everybody}) == 1
        and all(member.generation >= 0 for member in everybody)
    )


def until_shared(
    partitions: Partitions, members: Sequence[Owner], counts: Sequence[int] | None = None
) -> None:
    """Wait until each partition has exactly one owner; ``counts``: how many each has, the least first.

    Without counts it may be a state that passes, as a cooperative rebalance takes two rounds.
    """

    def look() -> bool:
        settled = is_shared(partitions, members)
        return settled and (counts is None or sorted(len(each.owned) for each in members) == list(counts))

    # Twice: a look at several threads is not one moment.
    until(lambda: look() and look(), f"one owner for each of {sorted(partitions)}: {counts}")


def until_owns(member: Owner, partitions: Partitions, seconds: float = SECONDS) -> None:
    until(lambda: member.owned == partitions, f"a member owns {sorted(partitions)}", seconds)


@contextlib.contextmanager
def joined(*members: Member) -> Iterator[None]:
    """Close all members at the end, whatever happens."""
    with contextlib.ExitStack() as stack:
        for member in members:
            stack.enter_context(member)
        yield
