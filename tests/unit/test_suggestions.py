"""A misspelled name is answered with the nearest known one."""

from __future__ import annotations

from millstream.suggestions import did_you_mean, nearest

NAMES = {"earliest", "latest", "none"}


def test_the_nearest_names_come_best_first() -> None:
    assert nearest("lateast", NAMES, count=2, cutoff=0.5) == ["latest", "earliest"]
    assert nearest("lateast", NAMES) == ["latest"]
    assert nearest("xyz", NAMES) == []
    assert len(nearest("xyz", NAMES, cutoff=0.0)) == 1


def test_the_sentence_is_empty_when_none_is_near() -> None:
    assert did_you_mean("latests", NAMES) == "did you mean latest?"
    assert did_you_mean("latests", NAMES, show=repr) == "did you mean 'latest'?"
    assert did_you_mean("xyz", NAMES) == ""
