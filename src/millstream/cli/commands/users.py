"""``millstream user``: list users, set their passwords, and delete them."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Final

import typer

from millstream.cli import completion
from millstream.cli.clients import open_admin
from millstream.cli.options import Commands, Common
from millstream.security.sasl.scram import MECHANISMS
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import print_json, print_table

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Mechanism = Annotated[
    str,
    typer.Option(
        "--mechanism",
        metavar="MECHANISM",
        help="SCRAM-SHA-512 or SCRAM-SHA-256.",
        autocompletion=completion.words(*MECHANISMS),
    ),
]
_DEFAULT: Final = "SCRAM-SHA-512"


def user() -> None:
    """List, add and delete the users that log in by SCRAM.

    [bold]Examples[/bold]

      millstream user set-password ann < password-file
      millstream user list
    """


def list_users(common: Common) -> None:
    """List the users and their mechanisms.

    [bold]Examples[/bold]

      millstream user list
      millstream user list --json
    """
    with open_admin(common.servers) as admin:
        users = admin.list_users()
    if common.as_json:
        print_json(users)
    else:
        rows = [(name, ", ".join(sorted(mechanisms))) for name, mechanisms in users.items()]
        print_table(("user", "mechanisms"), rows)


def set_password(user: User, common: Common, mechanism: Mechanism = _DEFAULT) -> None:
    """Add a user, or change its password, which is asked for, or piped in.

    [bold]Examples[/bold]

      millstream user set-password ann < password-file
      millstream user set-password ann --mechanism SCRAM-SHA-256 < password-file
    """
    password = _read_password(user)
    with open_admin(common.servers) as admin:
        admin.set_password(user, password, mechanism=mechanism)
    _print_done(user, "stored", as_json=common.as_json)


def delete(user: User, common: Common, mechanism: Mechanism = _DEFAULT) -> None:
    """Delete a user's credential of one mechanism.

    [bold]Examples[/bold]

      millstream user delete ann
      millstream user delete ann --mechanism SCRAM-SHA-256
    """
    with open_admin(common.servers) as admin:
        admin.set_password(user, None, mechanism=mechanism)
    _print_done(user, "deleted", as_json=common.as_json)


def _read_password(user: str) -> str:
    """Ask without showing it, and twice; from a pipe, take the first line."""
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass.getpass(f"Password of {user}: ")
        if getpass.getpass("Again: ") != password:
            raise UsageError("the two passwords differ: try again")
    if not password:
        raise UsageError("the password is empty: type one, or pipe it in")
    return password


def _print_done(user: str, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"user": user, what: True})
    else:
        print(f"{user}: {what}")


COMMANDS: Final[Commands] = {"list": list_users, "set-password": set_password, "delete": delete}
