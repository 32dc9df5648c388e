"""Waiting longer after each failure."""

from __future__ import annotations

from millstream.client.backoff import Backoff


def test_doubles_up_to_the_maximum() -> None:
    backoff = Backoff(100, 1000)
    middle = [backoff.delay_ms(failures, 0.5) for failures in range(7)]
    assert middle == [0, 100, 200, 400, 800, 1000, 1000]


def test_jitter_is_a_fifth_either_way_and_never_passes_the_maximum() -> None:
    backoff = Backoff(100, 1000)
    assert (backoff.delay_ms(1, 0.0), backoff.delay_ms(1, 1.0)) == (80, 120)
    assert backoff.delay_ms(50, 1.0) == 1000
    assert backoff.delay_ms(10_000, 0.0) == 1000


def test_no_back_off_at_all() -> None:
    assert Backoff(0, 0).delay_ms(5, 0.9) == 0
