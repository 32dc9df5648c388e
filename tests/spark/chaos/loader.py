"""Loads on a Spark that is elsewhere: ``python -m tests.spark.chaos.loader MASTER SETTINGS``.

An order is a line of JSON on its input, what came of it a line on its output. The workers do not have
millstream: the session sends it to them.
"""

from __future__ import annotations

import json
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from millstream.errors import MillstreamError
from millstream.spark.load import Load
from millstream.spark.runtime.session import session
from millstream.spark.sinks.base import Sink, TaskWriter
from millstream.spark.sinks.kinds import sink_for
from tests.spark.chaos.faults import ATTEMPT_SECONDS, Fault, FaultyWriter
from tests.waiting import until

ANSWER = "answer "


def with_faults(sink: Sink, fault: Fault) -> Sink:
    """The sink, with tasks that come to grief."""
    writer = sink.writer

    def faulty(cycle_id: str) -> TaskWriter:
        return FaultyWriter(writer(cycle_id), fault)

    vars(sink)["writer"] = faulty
    return sink


def stop_when_waiting(load: Load, directory: Path) -> None:
    """Stop the load in the middle of a task; in any case, so that a test that waits for it ends."""
    try:
        until((directory / "waiting-0").exists, "a task waits", ATTEMPT_SECONDS)
    finally:
        load.stop()


def carry_out(spark: Any, order: dict[str, Any]) -> dict[str, Any]:
    fault = Fault(**order["fault"])
    sink = with_faults(sink_for(order["to"], [order["topic"]], {}), fault)
    load = Load(
        spark,
        topics=[order["topic"]],
        group_id=order["group"],
        bootstrap_servers=order["servers"],
        sink=sink,
        **order["settings"],
    )
    if order["stops"]:
        wait = partial(stop_when_waiting, load, Path(fault.directory))
        threading.Thread(target=wait, daemon=True).start()
    try:
        return {"report": load.run_once().as_dict()}
    except MillstreamError as error:
        return {"error": str(error), "kind": type(error).__name__}
    finally:
        sink.close()


def main(master: str, settings: str) -> None:
    spark = session(master, **json.loads(settings))
    for line in sys.stdin:
        answer = carry_out(spark, json.loads(line))
        sys.stdout.write(f"{ANSWER}{json.dumps(answer)}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
