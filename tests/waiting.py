"""Waiting in tests: for a condition, with a deadline, and in words that say what did not happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

SECONDS: Final = 60.0
"""How long anything may take before a test gives up: machines may be busy, or stand still for a while."""

T = TypeVar("T")


def soon_enough(attempt: Callable[[], float], limit: float, what: str, attempts: int = 3) -> None:
    """Fail unless one of the attempts measures less than the limit: the machine may be busy during others."""
    measured: list[float] = []
    while not measured or (min(measured) >= limit and len(measured) < attempts):
        measured.append(attempt())
    assert min(measured) < limit, f"{what}: {measured}, and the limit is {limit}"


def until(
    condition: Callable[[], T | None],
    what: str | Callable[[], str],
    seconds: float = SECONDS,
    *,
    or_error: type[Exception] | tuple[type[Exception], ...] = (),
) -> T:
    """Wait for a condition, and return what it gives; fail with ``what`` when it does not come true.

    ``what`` says what is waited for, or is asked then, when there is more to tell. ``or_error``: what the
    condition may raise as long as it is too early.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        is_over = began >= deadline  # before the look: whoever was kept from running gets a last one
        early: Exception | None = None
        try:
            if found := condition():
                return found
        except or_error as error:
            early = error
        if is_over:
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:g} s: {text}") from early
        # A look that costs something is taken less often: what is waited for needs the processor, too.
        time.sleep(min(max(time.monotonic() - began, 0.01), 0.05))
