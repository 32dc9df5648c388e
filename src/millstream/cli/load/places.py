"""Whether there is a table where a command about a load looks for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.suggestions import did_you_mean
from millstream.terminal.outcome import CommandError

if TYPE_CHECKING:
    from millstream.spark.sinks.base import Sink


def require_table(to: str, sink: Sink, servers: str) -> None:
    """Raise where there is no table: nothing rejected is good news only of one that is there."""
    kind, _, place = to.partition(":")
    match kind.lower():
        case "delta":
            _require_directory(to, Path(place))
        case "topic":
            _require_topic(place, servers)
        case _:
            _require_in_database(sink)


def _require_directory(to: str, table: Path) -> None:
    if _is_a_table(table) or _is_a_table(table.with_name(f"{table.name}_rejected")):
        return
    beside = [path.name for path in table.parent.glob("*") if _is_a_table(path)]
    hint = did_you_mean(table.name, beside, show=lambda near: f"delta:{table.with_name(near)}")
    raise CommandError(f"there is no table {to}: {hint or 'check the directory'}")


def _is_a_table(path: Path) -> bool:
    return (path / "_delta_log").is_dir()


def _require_topic(topic: str, servers: str) -> None:
    from millstream.cli.clients import open_admin
    from millstream.cli.errors.names import require_topics

    with open_admin(servers) as admin:
        require_topics([topic], admin.list_topics(), "check the name, 'millstream topic list' has them")


def _require_in_database(sink: Sink) -> None:
    from millstream.spark import PostgresSink

    if isinstance(sink, PostgresSink) and not sink.exists():
        raise CommandError(f"there is no table {sink.name}: check its name and schema")
