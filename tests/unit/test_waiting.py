"""What the tests wait with: a failure says what did not happen, and a busy machine is no failure."""

from __future__ import annotations

import re

import pytest

from tests.waiting import soon_enough, until


def test_what_is_found_is_returned() -> None:
    answers = [0, None, 7]
    assert until(lambda: answers.pop(0), "an answer") == 7


def test_a_failure_says_what_did_not_happen() -> None:
    with pytest.raises(AssertionError, match=re.escape("not within 0.02 s: the sun rises")):
        until(lambda: False, "the sun rises", 0.02)
    with pytest.raises(AssertionError, match="as it is at the end"):
        until(lambda: False, lambda: "as it is at the end", 0.02)


def test_there_is_a_last_look_after_the_deadline() -> None:
    """Whoever waits may have been kept from running all the time."""
    assert until(lambda: True, "something that is so", 0.0)


def test_an_error_may_mean_not_yet() -> None:
    divisors = [0, 0, 1]
    assert until(lambda: 5 // divisors.pop(0), "a quotient", or_error=ZeroDivisionError) == 5
    with pytest.raises(AssertionError, match="never") as raised:
        until(lambda: 1 // 0, "never", 0.02, or_error=ZeroDivisionError)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        until(lambda: 1 // 0, "at once", or_error=KeyError)


def test_one_good_attempt_is_enough() -> None:
    measured = [3.0, 2.0, 0.5, 9.0]
    soon_enough(lambda: measured.pop(0), 1.0, "seconds")
    assert measured == [9.0]
    with pytest.raises(AssertionError, match=re.escape("seconds: [9.0, 9.0, 9.0]")):
        soon_enough(lambda: 9.0, 1.0, "seconds")
