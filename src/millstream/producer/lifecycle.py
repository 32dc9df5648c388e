"""How a producer ends: closed, garbage-collected, or still open when the interpreter exits.

A producer that is never closed must neither lose records nor block the program. When it is collected, its I/O
thread goes on until every record is delivered or has failed, and then ends. At the exit of the interpreter,
producers that are still open have a moment to deliver.
"""

from __future__ import annotations

import atexit
import logging
import time

from millstream.errors import ClosedError, MillstreamTimeoutError
from millstream.producer.driver import ProducerDriver

log = logging.getLogger("millstream.producer")

_EXIT_S = 2.0
"""How long all producers that were not closed may delay the exit of the interpreter together."""

_open: set[ProducerDriver] = set()


def opened(driver: ProducerDriver) -> None:
    """Register a producer until it ends."""
    _open.add(driver)


def close(driver: ProducerDriver, timeout_s: float | None) -> None:
    """Accept no more records, deliver those sent until ``timeout_s``, fail the rest, and end the thread."""
    io = driver.client.io
    if io.refusal is not None:
        return
    io.refuse(ClosedError("the producer is closed: create a new one"))
    try:
        if not io.is_current:
            driver.flush(timeout_s)
    except MillstreamTimeoutError as error:
        log.warning("the producer is closed with undelivered records: %s", error)
    finally:
        end(driver)


def end(driver: ProducerDriver) -> None:
    """Fail all records without an outcome, and stop the thread; waits for it unless called on it."""
    _open.discard(driver)
    if driver.client.io.is_forked:
        return
    driver.abort(ClosedError("the producer was closed before the record was delivered"))
    driver.client.close(0 if driver.client.io.is_current else 5.0)
    driver.release_waiters()


def collected(driver: ProducerDriver) -> None:
    """The Producer was collected without a close. That may happen on any thread, so do not wait."""
    io = driver.client.io
    if io.refusal is None:
        io.refuse(ClosedError("the producer is closed: create a new one"))
        driver.end_when_idle(lambda: end(driver))


@atexit.register
def _at_exit() -> None:
    deadline_s = time.monotonic() + _EXIT_S
    for driver in list(_open):
        if driver.client.io.is_forked or not driver.accumulator.incomplete:
            continue
        log.warning("a producer was never closed: delivering what it holds")
        driver.client.io.refuse(ClosedError())
        try:
            driver.flush(max(0.0, deadline_s - time.monotonic()))
        except MillstreamTimeoutError as error:
            log.error("records of a producer that was never closed are lost: %s", error)
