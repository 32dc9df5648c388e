"""What one broker calls the things that a sequence names by alias."""

from __future__ import annotations

import re
from typing import Any, Final

from millstream.wire.schema import ZERO_UUID

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UNSET: Final = (0, -1)


class Names:
    """Aliases and real names of one run on one broker, both ways."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.generations: dict[str, int] = {}
        self.leaders: dict[str, str] = {}
        self.pending: set[str] = set()
        """Member ids that were given out, and that nobody has joined with yet."""
        self._members: dict[str, str] = {}
        self._groups: dict[str, list[str]] = {}
        self._aliases: dict[str, str] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._topics_by_id: dict[bytes, str] = {ZERO_UUID: ""}
        self._numbers: dict[tuple[str, str], int] = {}

    # --- what a broker chose

    def joined(self, group: str, alias: str, member_id: str) -> None:
        self._members[alias] = member_id
        self._aliases[member_id] = f"$member:{alias}"
        in_group = self._groups.setdefault(group, [])
        if alias not in in_group:
            in_group.append(alias)

    def topic_is(self, name: str, topic_id: bytes) -> None:
        alias = self.alias_of(name)
        self._topic_ids[alias] = topic_id
        self._topics_by_id[topic_id] = f"$topic:{alias}"

    def number_is(self, kind: str, alias: str, number: int) -> None:
        self._numbers[kind, alias] = number

    # --- aliases to names

    def resolve(self, value: Any) -> Any:
        """The name or number that an alias stands for here; ``x*9`` is a long text; the rest is itself."""
        if not isinstance(value, str):
            return value
        if value.startswith("x*"):
            return "x" * int(value.removeprefix("x*"))
        if not value.startswith("$"):
            return value.replace("~", self.prefix)
        kind, _, alias = value[1:].partition(":")
        match kind:
            case "member":
                return self._members.get(alias, f"{alias} never joined")
            case "topic":
                return self._topic_ids.get(alias, b"no such topic id")
            case "generation":
                group, sign, delta = alias.partition("+")
                return self.generations.get(group, 1) + (int(delta) if sign else 0)
            case _:
                return self._numbers.get((kind, alias), 0)

    def everyone(self, value: str) -> list[dict[str, str]]:
        """``$everyone:group`` as an assignment for each member that the group ever had."""
        group = value.removeprefix("$everyone:")
        return [
            {"member_id": self._members[alias], "assignment": f"for {alias}"}
            for alias in self._groups.get(group, ())
        ]

    # --- names to aliases

    def alias_of(self, text: str) -> str:
        if text in self._aliases:
            return self._aliases[text]
        if _UUID.search(text):
            return "$member:?"
        return text.replace(self.prefix, "~")

    def alias_of_topic(self, topic_id: bytes) -> str:
        return self._topics_by_id.get(
            topic_id, "$topic:?" if topic_id != b"no such topic id" else "$topic:none"
        )

    def alias_of_number(self, kind: str, number: int) -> Any:
        return number if number in _UNSET else f"${kind}"
