"""``millstream console-user``: the users of the console, and what they may do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from millstream.cli.options import AsJson, Commands, Debug
from millstream.console.login.users import Role, Users, remove_user, set_user, users_file
from millstream.terminal.output import print_done, print_json, print_lines
from millstream.terminal.passwords import read_password

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
UsersFile = Annotated[
    Path | None,
    typer.Option(
        "--users",
        metavar="FILE",
        show_default="console-users.json in the user's configuration",
        help="The file with the console's users.",
    ),
]


def console_user() -> None:
    """Add, list and remove the users of the console.

    They are not the users of the brokers. As soon as there is one, the console asks for a login.

    [bold]Examples[/bold]

      millstream console-user add ann < password-file
      millstream console-user list
    """


def add(
    user: User,
    role: Annotated[
        Role | None,
        typer.Option(
            "--role",
            show_default="look, or as before",
            help="'change' may also create and delete topics, and move groups.",
        ),
    ] = None,
    users: UsersFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Add a user, or change its role and password, which is asked for, or piped in.

    A running console with a login knows the user at once.

    [bold]Examples[/bold]

      millstream console-user add ann < password-file
      millstream console-user add ann --role change < password-file
      millstream console-user add ann --users console-users.json < password-file
    """
    set_user(users or users_file(), user, read_password(user), role)
    print_done("user", user, "stored", as_json=as_json)


def list_users(users: UsersFile = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """List the users.

    [bold]Examples[/bold]

      millstream console-user list
      millstream console-user list --json
    """
    found = sorted(Users(users or users_file()).all().items())
    if as_json:
        print_json([{"user": name, "role": each.role} for name, each in found])
    else:
        none = "there are no users: 'millstream console-user add USER' adds one"
        print_lines(("user", "role"), [(name, each.role) for name, each in found], none=none)


def remove(user: User, users: UsersFile = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """Remove a user. Its sessions end.

    [bold]Examples[/bold]

      millstream console-user remove ann
      millstream console-user remove ann --json
    """
    remove_user(users or users_file(), user)
    print_done("user", user, "removed", as_json=as_json)


COMMANDS: Final[Commands] = {"add": add, "list": list_users, "remove": remove}
