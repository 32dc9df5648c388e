"""``millstream user``: list users, set their passwords, and delete them."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from millstream.cli import completion
from millstream.cli.clients import open_admin
from millstream.cli.options import Commands, Common
from millstream.security.sasl.scram import MECHANISMS
from millstream.terminal.output import print_done, print_json, print_table
from millstream.terminal.passwords import read_password

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
    password = read_password(user)
    with open_admin(common.servers) as admin:
        admin.set_password(user, password, mechanism=mechanism)
    print_done("user", user, "stored", as_json=common.as_json)


def delete(user: User, common: Common, mechanism: Mechanism = _DEFAULT) -> None:
    """Delete a user's credential of one mechanism.

    [bold]Examples[/bold]

      millstream user delete ann
      millstream user delete ann --mechanism SCRAM-SHA-256
    """
    with open_admin(common.servers) as admin:
        admin.set_password(user, None, mechanism=mechanism)
    print_done("user", user, "deleted", as_json=common.as_json)


COMMANDS: Final[Commands] = {"list": list_users, "set-password": set_password, "delete": delete}
