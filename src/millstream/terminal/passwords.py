"""Reads a new password from the terminal or a pipe."""

from __future__ import annotations

import getpass
import sys

from millstream.terminal.outcome import UsageError


def read_password(user: str) -> str:
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
