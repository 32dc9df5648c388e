"""The command line: ``millstream``, also ``python -m millstream``.

``app`` is the tree of commands. ``commands/`` has one file per command, each a thin layer over the public
names; what a large command needs is in a folder of its name. Every command has ``--help``, exits with 0
(done), 1 (failed) or 2 (bad usage), and reports an error in one sentence.

``--help`` imports nothing heavy, and a correct ``millstream broker`` not even the parser of options: the
broker must be ready in a fraction of a second.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Sequence

_INTERRUPTED = 130  # as in outcome, which may not be imported yet


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default the one that the process was started with, and return its exit code."""
    if arguments is not None:
        return _run(list(arguments))
    for name in ("stdout", "stderr"):  # closed by the parent process
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
    try:
        code = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while the command was being imported
        return _INTERRUPTED
    _exit_if_spark_is_starting(code)
    gc.freeze()  # saves the last garbage collection: 0.2 s after a load
    return code


def _run(given: list[str]) -> int:
    if given[:1] == ["broker"]:
        from millstream.cli.broker.arguments import read_plainly

        options = read_plainly(given[1:])
        if options is not None:
            from millstream.cli.broker.serve import serve
            from millstream.terminal.outcome import Session, exit_code_of

            session = Session(options.debug, options.as_json, tuple(given))
            return exit_code_of(lambda: serve(options), session)
    from millstream.cli.app import run

    return run(given)


def _exit_if_spark_is_starting(code: int) -> None:
    """End the process at once if a background thread is still starting Spark.

    A normal exit would tear down modules that this thread uses, which crashes it.
    """
    if any(thread.daemon and thread.name.startswith("millstream-load-") for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
