"""``millstream demo``: its help and options. What it does is in ``show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.options import AsJson, Debug
from millstream.terminal.outcome import UsageError


def demo(
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Save what it shows as SVG.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """See it work: a group that changes while it counts, and a topic that becomes a table, exactly once.

    Starts a broker of its own on a free port, with its data in a temporary directory, and cleans up at the
    end; only the table stays, to be looked at. It takes about a minute, asks nothing, and fails if any number
    does not add up.

    [bold]Examples[/bold]

      millstream demo
      millstream demo --json
    """
    if picture is not None and (picture.is_dir() or not picture.absolute().parent.is_dir()):
        raise UsageError(f"--picture {str(picture)!r} cannot be written: name a file in a directory there is")
    from millstream.demo.show import show

    return show(as_json=as_json, picture=picture)
