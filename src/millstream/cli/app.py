"""The tree of commands, and running one of them. A new command is one line here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import millstream
from millstream.cli import completion
from millstream.cli.commands import (
    acls,
    broker,
    console,
    console_users,
    consume,
    contexts,
    demo,
    groups,
    produce,
    quotas,
    scan,
    topics,
    users,
)
from millstream.cli.errors.misuse import sentence
from millstream.cli.load import command as load
from millstream.cli.load.group import LoadGroup
from millstream.cli.options import ALIASES, Commands, ContextName, flat
from millstream.terminal.outcome import DONE, Session, UsageError, exit_code_of, say_error

app = typer.Typer(
    name="millstream",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={
        "help_option_names": ["--help", "-h"],
        "token_normalize_func": lambda token: ALIASES.get(token, token),
    },
)


completion.use_own_bash_script()

_INDENTED = "[dim][/dim]"
"""Renders as nothing. Keeps indentation, which typer removes where every line starts with a blank."""


_WITHOUT_BROKERS: Final = ("broker", "console-user", "context", "demo")
"""Commands that connect to no cluster of the user's."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"millstream {millstream.__version__}")
        raise typer.Exit


def _millstream(
    context: typer.Context,
    context_name: ContextName = None,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Kafka's consumer system in Python, with the broker included.

    [bold]First steps[/bold], with the broker in a terminal of its own

      millstream broker
      millstream topic create orders --partitions 4
      echo 'hello' | millstream produce orders
      millstream consume orders --from earliest

    To see all of it work first, run millstream demo.

    Commands connect to --bootstrap-servers, else to the cluster that --context names, else to that of the
    environment's MILLSTREAM_CONTEXT or MILLSTREAM_BOOTSTRAP_SERVERS, else to that of millstream context use,
    else to 127.0.0.1:9092, where a broker listens by default. They exit with 0 (done), 1 (failed) or 2 (bad
    usage).
    """
    if context_name and context.invoked_subcommand in _WITHOUT_BROKERS:
        raise UsageError(
            f"--context names a cluster, and '{context.invoked_subcommand}' connects to none: leave it out"
        )


def help_of(function: Callable[..., Any]) -> str:
    """A command's docstring as help: prose is joined into paragraphs, indented lines stay as they are."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(
        _INDENTED + paragraph if paragraph.startswith("  ") else " ".join(paragraph.split())
        for paragraph in paragraphs
    )


class _PlainFlags:
    """A command whose help shows no type for options that take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, including those that typer adds."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return params


class _Command(_PlainFlags, TyperCommand):
    """One command."""


class _Group(_PlainFlags, TyperGroup):
    """A group of commands, or all of them."""


def _add(parent: typer.Typer, name: str, function: Callable[..., Any]) -> None:
    parent.command(name, cls=_Command, help=help_of(function))(flat(function))


def _add_group(
    name: str,
    function: Callable[[], None],
    commands: Commands,
    kind: type[TyperGroup] = TyperGroup,
) -> None:
    plain = type(kind.__name__, (_PlainFlags, kind), {})
    inner = typer.Typer(cls=plain, no_args_is_help=True, rich_markup_mode="rich", help=help_of(function))
    for each, command in commands.items():
        _add(inner, each, command)
    app.add_typer(inner, name=name)


app.callback(cls=_Group, help=help_of(_millstream))(_millstream)
_add(app, "broker", broker.broker)
_add_group("topic", topics.topic, topics.COMMANDS)
_add(app, "produce", produce.produce)
_add(app, "consume", consume.consume)
_add(app, "scan", scan.scan)
_add_group("group", groups.group, groups.COMMANDS)
_add_group("acl", acls.acl, acls.COMMANDS)
_add_group("user", users.user, users.COMMANDS)
_add_group("quota", quotas.quota, quotas.COMMANDS)
_add_group("context", contexts.context, contexts.COMMANDS)
_add_group(
    "load",
    load.load,
    {"run": load.run, "status": load.status, "rejected": load.rejected, "replay": load.replay},
    LoadGroup,
)
_add(app, "console", console.console)
_add_group("console-user", console_users.console_user, console_users.COMMANDS)
_add(app, "demo", demo.demo)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    session = Session(typed=tuple(_from_command_on(arguments)))
    return exit_code_of(lambda: _invoke(arguments, session), session)


def _from_command_on(arguments: Sequence[str]) -> Sequence[str]:
    """The words from the command's name on: a context may be named before it."""
    while arguments and arguments[0].partition("=")[0] == "--context":
        arguments = arguments[1 if "=" in arguments[0] else 2 :]
    return arguments


def _invoke(arguments: Sequence[str], session: Session) -> int:
    try:
        result = get_command(app).main(
            args=list(arguments), prog_name="millstream", standalone_mode=False, obj=session
        )
    except typer.TyperException as error:
        return _report_misuse(error, session)
    except SystemExit as error:
        # typer and rich end this way when the reader has closed the pipe.
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    return result if isinstance(result, int) else DONE


def _report_misuse(error: typer.TyperException, session: Session) -> int:
    """Print in one sentence what is wrong with the command line, and which help explains it."""
    text = sentence(error)
    if text:
        say_error(f"{text}; see '{_command_path(error, session)} --help'", as_json=session.as_json)
    return error.exit_code


def _command_path(error: typer.TyperException, session: Session) -> str:
    """The command that was misused, as it is typed."""
    context = getattr(error, "ctx", None)
    if context is not None:
        found: str = context.command_path
        return found
    words = ["millstream"]
    command: Any = get_command(app)
    for word in session.typed:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        words.append(word)
    return " ".join(words)
