"""The command line: ``millstream``, also ``python -m millstream``.

One file per command group, each of them a thin layer over the public names: what a command does can be done
from Python in as few lines. Every command says ``--help``, exits with 0 (done), 1 (failed) or 2 (misused) and
reports an error in one sentence.

Nothing heavy is imported on the way to ``--help``, and on the way to a running broker not even the parser of
options: ``millstream broker`` has to be ready in a fraction of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default the one that the process was started with, and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["broker"]:
        from millstream.cli.broker_arguments import read_plainly

        order = read_plainly(given[1:])
        if order is not None:
            from millstream.cli.outcome import Session, exit_code_of
            from millstream.cli.serve import serve

            return exit_code_of(lambda: serve(order), Session(debug=order.debug, as_json=order.as_json))
    from millstream.cli.app import run

    return run(given)
