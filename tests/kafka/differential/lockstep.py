"""A sequence on two brokers, one step at a time, until they answer differently."""

from __future__ import annotations

import json
import operator
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.kafka.differential.known import is_known
from tests.kafka.differential.sides import PENDING, TOPIC, Side, gather
from tests.kafka.differential.values import Plain, Step
from tests.waiting import until

_QUIET_SECONDS: Final = 0.35
"""A request that neither broker answers for so long waits for something: a new group waits 0.1 s."""
_LATE_SECONDS: Final = 20.0
"""When one broker has answered, the other must within this time."""
_GRACE_SECONDS: Final = 0.03
"""After a step that may release others: their answers follow."""
_SEES_COMMITTED: Final = ("ListGroups", "DescribeGroups", "DeleteGroups", "OffsetFetch")
"""Kafka shows a group that a refused join has made only after it has written it down."""
_CHANGES_TOPICS: Final = ("CreateTopics", "DeleteTopics", "CreatePartitions")
_CHANGES_SETTINGS: Final = ("AlterConfigs", "IncrementalAlterConfigs")
_LEAVE_SEVERAL_VERSION: Final = 3
_ATTEMPTS: Final = 6
"""How often a sequence is run until both brokers have chosen the same leader."""
_LEADERS: Final = "another leader"
_ASSIGNORS: Final = "another assignor"
_REBALANCE: Final = "a rebalance because of an id that was given back"


@dataclass(frozen=True)
class Difference:
    """Where two brokers part: the step, and what each said."""

    index: int
    step: Step
    where: tuple[str, ...]
    replies: tuple[Plain, Plain]

    @property
    def signature(self) -> tuple[object, ...]:
        """What makes two differences the same one, for shrinking."""
        return self.step.api, tuple(each for each in self.where if not each.isdigit())

    def __str__(self) -> str:
        where = ".".join(self.where) or "all of it"
        shown = self.replies if "configs" in self.where else map(_without_configs, self.replies)
        parts = [json.dumps(each, sort_keys=True) for each in shown]
        return f"step {self.index} differs at {where}\nOURS  {parts[0]}\nKAFKA {parts[1]}"


@dataclass(frozen=True)
class Parted:
    """Where two brokers have chosen differently, as they may: what follows cannot be compared."""

    index: int
    what: str


def _without_configs(reply: Plain) -> Plain:
    """A reply as it is shown: the settings of a topic would fill pages."""
    if isinstance(reply, dict):
        return {key: "…" if key == "configs" else _without_configs(value) for key, value in reply.items()}
    return [_without_configs(each) for each in reply] if isinstance(reply, list) else reply


def run(steps: Sequence[Step], ours: str, theirs: str) -> Difference | Parted | None:
    """Run a sequence under fresh names; the first difference that is not a known one.

    When a group's leader has gone, Kafka takes the first of a hash table whose keys are random. A sequence in
    which it has taken another one than ours is run again: sooner or later it takes the same.
    """
    found: Difference | Parted | None = None
    for _ in range(_ATTEMPTS):
        prefix = f"d{uuid.uuid4().hex[:12]}-"
        with _sides(ours, theirs, prefix) as sides:
            found = _Lockstep(sides).run(steps)
        if not isinstance(found, Parted) or found.what != _LEADERS:
            break
    return found


@contextmanager
def _sides(ours: str, theirs: str, prefix: str) -> Iterator[list[Side]]:
    sides = [Side("ours", ours, prefix), Side("Kafka", theirs, prefix)]
    try:
        for side in sides:
            until(side.is_ready, f"{side.name} coordinates groups")
        yield sides
    finally:
        for side in sides:
            side.close()


class _Lockstep:
    def __init__(self, sides: list[Side]) -> None:
        self._sides = sides
        self._steps: Sequence[Step] = ()
        self._compared: set[int] = set()
        self._unanswered: set[int] = set()
        self._leaders: dict[str, str] = {}

    def run(self, steps: Sequence[Step]) -> Difference | Parted | None:
        self._steps = steps
        for index, step in enumerate(steps):
            self._gather_for(max(step.after, _GRACE_SECONDS if step.api in _SEES_COMMITTED else 0.0))
            for side in self._sides:
                side.send(index, step)
            self._settle(index)
            found = (
                self._compare() or self._wait_for_topics(index, step) or self._wait_for_settings(index, step)
            )
            if found is not None:
                return found
        return None

    # --- waiting

    def _settle(self, index: int) -> None:
        """Wait until both have answered the same steps, and this one unless both let it wait."""
        deadline = time.monotonic() + _QUIET_SECONDS
        while True:
            gather(self._sides, 0.005)
            ours, theirs = self._answered()
            now = time.monotonic()
            if ours == theirs and (index in ours or now > deadline):
                break
            if ours != theirs and now > deadline + _LATE_SECONDS:
                return
        if any(side.sockets for side in self._sides):
            self._gather_for(_GRACE_SECONDS)
            self._catch_up()

    def _gather_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            gather(self._sides, left)

    def _catch_up(self) -> None:
        deadline = time.monotonic() + _LATE_SECONDS
        while operator.ne(*self._answered()) and time.monotonic() < deadline:
            gather(self._sides, 0.01)

    def _answered(self) -> tuple[set[int], set[int]]:
        """Which steps each side has answered, without those that one of them never will."""
        first, second = (side.replies.keys() - self._unanswered for side in self._sides)
        return first, second

    def _wait_for_topics(self, index: int, step: Step) -> Difference | None:
        """Kafka answers when the controller has decided; its brokers follow a moment later."""
        if step.api not in _CHANGES_TOPICS:
            return None
        names = sorted(set(_topic_names(step)))
        deadline = time.monotonic() + _LATE_SECONDS
        while True:
            found = [side.topics(names) for side in self._sides]
            if found[0] is not None and found[0] == found[1] and not self._keep_offsets(names, found[0]):
                return None
            if time.monotonic() > deadline:
                return Difference(index, step, ("topics afterwards",), (found[0], found[1]))
            time.sleep(0.005)

    def _keep_offsets(self, names: list[str], found: Plain) -> bool:
        """Whether a coordinator has yet to drop the offsets of topics that are gone."""
        assert isinstance(found, list)
        gone = set(names) - {name for name, error_code, _ in found if not error_code}
        groups = {step.fields.get("group_id", "") for step in self._steps}
        named = sorted(group for group in groups if group.startswith("~"))
        return any(gone & side.committed_topics(named) for side in self._sides)

    def _wait_for_settings(self, index: int, step: Step) -> Difference | None:
        """The same for settings: a busy Kafka describes the old ones for a while."""
        if step.api not in _CHANGES_SETTINGS or step.fields.get("validate_only"):
            return None
        names = sorted(
            {each["resource_name"] for each in step.fields["resources"] if each["resource_type"] == TOPIC}
        )
        deadline = time.monotonic() + _LATE_SECONDS
        while names:
            found = [side.own_settings(names) for side in self._sides]
            if found[0] == found[1]:
                time.sleep(_GRACE_SECONDS)  # nothing tells when Kafka's log has them, a moment later
                break
            if time.monotonic() > deadline:
                return Difference(index, step, ("settings afterwards",), (found[0], found[1]))
            time.sleep(0.005)
        return None

    # --- comparing

    def _compare(self) -> Difference | Parted | None:
        first, second = self._sides
        new = sorted((first.replies.keys() | second.replies.keys()) - self._compared)
        for index in new:  # in the order of the requests, as answers may overtake each other
            for side in self._sides:
                side.learn(index, self._steps[index])
        for index in new:
            self._compared.add(index)
            step = self._steps[index]
            replies = (first.plain_reply(index), second.plain_reply(index))
            if PENDING in replies:
                self._unanswered.add(index)
            if self._gives_id_back(step):
                return Parted(index, _REBALANCE)
            if self._leads_differ(step):
                return Parted(index, _LEADERS)
            if _voted_differently(step, *replies):
                return Parted(index, _ASSIGNORS)
            for where in _differences(*replies):
                if not is_known(step, where, *replies):
                    return Difference(index, step, where, replies)
        return None

    def _gives_id_back(self, step: Step) -> bool:
        """Whether somebody leaves who never joined: Kafka has all the others join again, ours has nobody."""
        if step.api != "LeaveGroup":
            return False
        names = self._sides[0].names
        several = step.version >= _LEAVE_SEVERAL_VERSION
        leaving = step.fields["members"] if several else [step.fields]
        if not any(names.resolve(each["member_id"]) in names.pending for each in leaving):
            return False
        ours, theirs = (side.group_state(step.fields["group_id"]) for side in self._sides)
        return bool(ours != theirs)

    def _leads_differ(self, step: Step) -> bool:
        """Whether a leader had to be replaced and each broker took another one: from there on they part."""
        if step.api != "JoinGroup":
            return False
        before = self._leaders.get(step.group)
        leaders = [side.names.alias_of(side.names.leaders.get(step.group, "")) for side in self._sides]
        if leaders[0] == leaders[1]:
            self._leaders[step.group] = leaders[0]
            return False
        return before is not None and before not in leaders


def _voted_differently(step: Step, ours: Plain, theirs: Plain) -> bool:
    """Whether members were of two minds about the assignor, and the brokers settled it differently.

    In a tie ours keeps the present one; Kafka takes the first of a hash table.
    """
    if step.api != "JoinGroup" or PENDING in (ours, theirs) or ours["error_code"] or theirs["error_code"]:
        return False
    return bool(ours["protocol_name"] != theirs["protocol_name"])


def _topic_names(step: Step) -> Iterator[str]:
    for topic in step.fields.get("topics", ()):
        name = topic.get("name") or topic.get("topic_id", "").removeprefix("$topic:")
        if name.startswith("~"):
            yield name
    yield from (name for name in step.fields.get("topic_names", ()) if name.startswith("~"))


def _differences(one: Plain, other: Plain, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of each value that differs."""
    if type(one) is not type(other):
        yield path
    elif isinstance(one, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differences(one.get(key), other.get(key), (*path, key))
    elif isinstance(one, list):
        if len(one) != len(other):
            yield (*path, "length")
        for number, pair in enumerate(zip(one, other, strict=False)):
            yield from _differences(*pair, (*path, str(number)))
    elif one != other:
        yield path
