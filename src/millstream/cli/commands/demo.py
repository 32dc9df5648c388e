"""``millstream demo``: the command and its help."""

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
    """See it work: a consumer group that rebalances, and a topic loaded into a table, exactly once.

    Starts a broker on a free port, with its data in a temporary directory, and cleans up at the end; only the
    table stays, so that you can query it. It takes about a minute, asks nothing, and fails if any number is
    wrong.

    [bold]Examples[/bold]

      millstream demo
      millstream demo --json
    """
    if picture is not None and (picture.is_dir() or not picture.absolute().parent.is_dir()):
        raise UsageError(
            f"--picture {str(picture)!r} cannot be written: name a file in an existing directory"
        )
    from millstream.demo.show import show

    return show(as_json=as_json, picture=picture)
