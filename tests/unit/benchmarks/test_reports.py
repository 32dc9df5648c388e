"""What is measured, compared and written down."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import clients, report, targets
from benchmarks.measure import alternate
from benchmarks.readers import READERS
from benchmarks.report import Section
from benchmarks.targets import Figures, Target

FIGURES = {
    targets.ARROW: Figures(10e6, 0.1, 240),
    targets.POLL: Figures(1.1e6, 0.5, 150),
    targets.PEER: Figures(1e6, 1.0, 600),
    "aiokafka": Figures(1e5, 0.4, 80),
    targets.LIMIT: Figures(16e6, 0.01, 20),
    "Java ConsumerPerformance": Figures(2e6, 0.3, 300),
}
PROFILE = {
    "seconds": {"wall": 0.1, "the user's thread": 0.05, "the I/O thread": 0.04, "the broker": 0.06},
    "functions": [("recv_into", 0.2)],
}


def test_targets_say_by_how_much_they_are_missed() -> None:
    verdicts = {each.what: each.verdict for each in targets.targets(FIGURES)}
    assert verdicts == {
        "millstream poll_arrow, rate beside confluent-kafka consume, tuned": "met",
        "millstream poll_arrow, rate beside the raw limit": "met",
        "millstream poll, rate beside confluent-kafka consume, tuned": "**missed by 8%**",
        "millstream poll_arrow, CPU beside aiokafka": "met",
        "millstream poll_arrow, peak memory beside confluent-kafka consume, tuned": "met",
        "millstream poll, CPU beside aiokafka": "**missed by 25%**",
        "millstream poll, peak memory beside confluent-kafka consume, tuned": "met",
    }


@pytest.mark.parametrize(
    ("measured", "at_most", "verdict"),
    [
        (1.0, False, "met"),
        (1.0, True, "met"),
        (0.5, False, "**missed by 50%**"),
        (1.5, True, "**missed by 50%**"),
    ],
)
def test_a_target_is_a_least_or_a_most(measured: float, at_most: bool, verdict: str) -> None:
    assert Target("t", measured, 1.0, at_most).verdict == verdict


def test_the_profile_is_attached() -> None:
    text = targets.section(FIGURES, PROFILE).text
    assert "what limits those that were missed" in text
    assert "| cores that client and broker keep busy | 1.50 |" in text
    assert "| `recv_into` | 20% |" in text
    met = {**FIGURES, targets.POLL: Figures(2e6, 0.3, 150)}
    assert "what limits" not in targets.section(met, PROFILE).text


def test_contestants_take_turns_at_going_first() -> None:
    order: list[str] = []

    def once(name: str) -> float:
        order.append(name)
        return len(order)

    figures = alternate({name: partial(once, name) for name in "abc"}, 3)
    assert order == list("abcbcacab")
    assert figures["a"].figures == [1, 6, 8] and figures["a"].median == 6


def test_other_sections_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "RESULTS.md")
    report.write([Section("One", "| 1 |"), Section("Two", "2")])
    report.write([Section("One", "anew")])
    found = report.read()
    assert list(found) == ["One", "Two"]
    assert found["One"].startswith("anew") and found["Two"].startswith("2")


def test_every_reader_has_its_share_and_every_name_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(clients.SHARES) == set(READERS)
    assert {*clients.FAST} <= set(READERS)
    assert {targets.ARROW, targets.POLL, targets.PEER, targets.LIMIT} <= set(READERS)
    assert command.main(["clients", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().out
