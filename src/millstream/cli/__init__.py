"""The command line: ``millstream``, also ``python -m millstream``.

One file per command group, each of them a thin layer over the public names: what a command does can be done
from Python in as few lines. Every command says ``--help``, exits with 0 (done), 1 (failed) or 2 (misused) and
reports an error in one sentence.

Nothing heavy is imported on the way to ``--help``, and on the way to a running broker not even the parser of
options: ``millstream broker`` has to be ready in a fraction of a second.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Sequence

_INTERRUPTED = 130  # as in outcome, which is not imported yet where this is needed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default the one that the process was started with, and return its exit code."""
    if arguments is not None:
        return _run(list(arguments))
    for name in ("stdout", "stderr"):  # closed by whoever started us: what is said goes nowhere
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:  # on the way to the command, which takes a moment to load
        return _INTERRUPTED
    _leave_what_still_starts(code)
    gc.freeze()  # at its end the interpreter looks through all objects: after a load for a fifth of a second
    return code


def _run(given: list[str]) -> int:
    if given[:1] == ["broker"]:
        from millstream.cli.broker.arguments import read_plainly

        order = read_plainly(given[1:])
        if order is not None:
            from millstream.cli.broker.serve import serve
            from millstream.terminal.outcome import Session, exit_code_of

            session = Session(order.debug, order.as_json, tuple(given))
            return exit_code_of(lambda: serve(order), session)
    from millstream.cli.app import run

    return run(given)


def _leave_what_still_starts(code: int) -> None:
    """End the process at once where Spark is still being started in the background: nobody waits for it.

    The interpreter's own end would take the modules away from under that thread, which then crashes.
    """
    if any(thread.daemon and thread.name.startswith("millstream-load-") for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
