"""The ports of servers that start later differ."""

from __future__ import annotations

from itertools import chain, count

import pytest

from benchmarks.peers import free_port


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two listeners of one server must not share a port."""
    first = free_port()
    drawn = chain([first, first], count(first + 1))

    class Chance:
        def randrange(self, start: int, end: int) -> int:
            return next(drawn)

    monkeypatch.setattr("random.SystemRandom", Chance)
    assert free_port() != first
