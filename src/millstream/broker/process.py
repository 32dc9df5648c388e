"""The broker as a child process: reads its arguments from standard input, answers with its address, serves.

Both are a line of JSON: ``{"data", "listen", "settings", "allow_remote", "security", "metrics"}`` in, and out
``{"listeners", "metrics"}`` (addresses, by name) or ``{"error"}``. The end of standard input means that the
parent is gone: the broker then stops cleanly.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from pathlib import Path

from millstream.broker.broker import Broker
from millstream.errors import MillstreamError
from millstream.net.reactor import READABLE


def main() -> int:
    """Run one broker. Return 0 after a clean stop, 1 if it could not start."""
    # Ctrl-C in a terminal reaches this process too, but the parent needs it while it closes its clients.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="millstream broker: %(levelname)s %(message)s")
    try:
        broker = _start(json.loads(sys.stdin.buffer.readline()))
    except (MillstreamError, OSError, ValueError, KeyError) as error:
        _answer({"error": str(error)})
        return 1
    signal.signal(signal.SIGTERM, lambda *_: broker.stop())
    broker.reactor.watch(sys.stdin.fileno(), READABLE, lambda _: _stop_at_end(broker))
    served = broker.metrics_server
    _answer(
        {
            "listeners": {listener.name: str(listener.address) for listener in broker.listeners},
            "metrics": "" if served is None else served.address,
        }
    )
    broker.run()
    return 0


def _start(order: dict[str, object]) -> Broker:
    settings = order["settings"]
    if not isinstance(settings, dict):
        raise ValueError("settings must be an object")
    return Broker.launch(
        Path(str(order["data"])),
        settings,
        str(order["listen"]),
        allow_remote=bool(order["allow_remote"]),
        secure=bool(order["security"]),
        metrics=str(order.get("metrics", "")),
    )


def _stop_at_end(broker: Broker) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        broker.reactor.unwatch(sys.stdin.fileno())
        broker.stop()


def _answer(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
