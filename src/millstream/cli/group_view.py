"""Prints consumer groups as tables, once or repeatedly with rates."""

from __future__ import annotations

import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from millstream.terminal.output import count, field_lines, print_fields, print_json, print_table, rich_table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Values = dict[str, Any]
Table = tuple[Sequence[str], list[tuple[object, ...]]]

_OPTIONAL: Final = ("client", "produced/s", "committed/s")
"""Columns of partitions that a narrow terminal is not shown, the first one first."""


def print_groups(groups: Sequence[Values]) -> None:
    """Print groups, one below the other."""
    for place, group in enumerate(groups):
        if place:
            print()
        print_fields(_fields(group))
        for columns, rows in _tables(group):
            print()
            print_table(columns, rows)


def watch(look: Callable[[], list[Values]], interval_s: float, *, as_json: bool) -> None:
    """Show groups every ``interval_s`` seconds, with rates, until Ctrl-C.

    A terminal shows one picture that is updated; a pipe gets each round, as JSON one line each.
    """
    if as_json or not sys.stdout.isatty():
        for groups in _looks(look, interval_s):
            if as_json:
                print_json(groups)
            else:
                print(time.strftime("%H:%M:%S"))
                print_groups(groups)
                print()
            sys.stdout.flush()
        return
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        for groups in _looks(look, interval_s):
            live.update(picture(groups, interval_s, live.console), refresh=True)


def _looks(look: Callable[[], list[Values]], interval_s: float) -> Iterator[list[Values]]:
    before: list[Values] = []
    seen_s = 0.0
    while True:
        now_s = time.monotonic()
        groups = look()
        add_rates(groups, before, now_s - seen_s)
        yield groups
        before, seen_s = groups, now_s
        time.sleep(interval_s)


def add_rates(groups: list[Values], before: list[Values], seconds: float) -> None:
    """Add to each partition the records per second produced and committed since ``before``.

    None where there is no earlier value, or where the offset went back.
    """
    earlier = {
        (group["group"], one["topic"], one["partition"]): one
        for group in before
        for one in group["partitions"]
    }
    for group in groups:
        for one in group["partitions"]:
            then = earlier.get((group["group"], one["topic"], one["partition"]), {})
            one["produced_per_s"] = _rate(then.get("end"), one["end"], seconds)
            one["committed_per_s"] = _rate(then.get("committed"), one["committed"], seconds)
        for name in ("produced_per_s", "committed_per_s"):
            known = [one[name] for one in group["partitions"] if one[name] is not None]
            group[name] = round(sum(known), 1) if known else None


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None or after < before or seconds <= 0:
        return None
    return round((after - before) / seconds, 1)


def picture(groups: Sequence[Values], interval_s: float, console: Console) -> RenderableType:
    """Groups cropped to the height of the terminal: ids and clients go first, then rows, counted."""
    every = f"every {interval_s:g} s, {time.strftime('%H:%M:%S')}; Ctrl-C ends it"

    def is_too_high(most_rows: int, *, brief: bool = True) -> bool:
        drawn = _cropped(groups, every, console.width, most_rows, brief=brief)
        return len(console.render_lines(drawn, pad=False)) > console.height

    # A row takes at least a line, so no more rows than lines can fit.
    fitting = console.height
    if brief := is_too_high(fitting, brief=False):
        fitting = bisect_left(range(1, fitting), True, key=is_too_high)
    return _cropped(groups, every, console.width, fitting, brief=brief)


def _cropped(
    groups: Sequence[Values], footer: str, width: int, most_rows: int, *, brief: bool
) -> RenderableType:
    """The first ``most_rows`` rows of groups, above a footer that counts the others."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    hidden = {"member": 0, "partition": 0}
    for group in groups:
        parts.append(Text(field_lines(_fields(group))))
        for columns, rows in reversed([*_tables(group)]) if brief else _tables(group):
            shown = rows[:most_rows]
            most_rows -= len(shown)
            hidden["member" if columns[0] == "member" else "partition"] += len(rows) - len(shown)
            if shown:
                kept = slice(int(brief), None) if columns[0] == "member" else slice(len(columns) - brief)
                cells = [row[kept] for row in shown]
                parts.append(rich_table(columns[kept], cells, width=width, optional=_OPTIONAL))
    more = [count(number, f"more {noun}") for noun, number in hidden.items() if number]
    if more:
        parts.append(Text(f"{' and '.join(more)}: they need a higher terminal", style="dim"))
    parts.append(Text(footer, style="dim"))
    return Group(*parts)


def _fields(group: Values) -> Values:
    names = ("group", "state", "assignor", "coordinator", "lag")
    fields = {name: group[name] for name in names}
    if "committed_per_s" in group:
        fields["produced/s"] = group["produced_per_s"]
        fields["committed/s"] = group["committed_per_s"]
    return fields


def _tables(group: Values) -> Iterator[Table]:
    if group["members"]:
        yield ("member", "client", "host", "partitions"), [_member_row(one) for one in group["members"]]
    if group["partitions"]:
        clients = {member["member_id"]: member["client_id"] for member in group["members"]}
        columns = ["topic", "partition", "committed", "end", "lag"]
        if "committed_per_s" in group:
            columns += ["produced_per_s", "committed_per_s"]
        rows = [
            (*(one[name] for name in columns), clients.get(one["member_id"])) for one in group["partitions"]
        ]
        yield [name.replace("_per_s", "/s") for name in columns] + ["client"], rows


def _member_row(member: Values) -> tuple[object, ...]:
    by_topic: dict[str, list[str]] = {}
    for topic, partition in member["partitions"]:
        by_topic.setdefault(topic, []).append(str(partition))
    partitions = " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())
    name = member["instance_id"] or member["member_id"]
    return name, member["client_id"], member["host"].removeprefix("/"), partitions
