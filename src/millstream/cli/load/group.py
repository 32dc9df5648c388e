"""The command ``millstream load`` itself: its commands by name, or a topic, which means ``load run``."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

from millstream.cli.errors.misuse import sentence
from millstream.cli.errors.typos import typo_of
from millstream.terminal.outcome import UsageError

_OTHERS: Final = ("status", "rejected", "replay")
_TAKEN_FOR_A_TOPIC: Final = "millstream.taken_for_a_topic"


class LoadGroup(TyperGroup):
    """The commands of ``load``. Any other word is a topic: ``load orders`` is ``load run orders``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {"--help", "-h", *self.commands}
        if args and args[0] not in names:
            ctx.meta[_TAKEN_FOR_A_TOPIC] = args[0]
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. If its options are wrong, its first word may be a misspelled command."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            near = near_command(ctx.meta.get(_TAKEN_FOR_A_TOPIC, ""))
            if near is None:
                raise
            raise UsageError(f"{sentence(error)}; or did you mean 'millstream load {near}'?") from error

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands, the topics, and the options of ``run``."""
        found = super().shell_complete(ctx, incomplete)
        run = self.commands["run"]
        inner = run.make_context("run", [], parent=ctx, resilient_parsing=True)
        return found + run.params[0].shell_complete(inner, incomplete) + run.shell_complete(inner, incomplete)


def near_command(word: str) -> str | None:
    """The command of ``load`` that a supposed topic may be a misspelling of."""
    others = [name for name in _OTHERS if len(word) > 3 and name.startswith(word)]
    return others[0] if others else typo_of(word, _OTHERS)
