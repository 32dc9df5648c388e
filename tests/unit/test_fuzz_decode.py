"""What the command that compares the decoders tells while it runs; ``test_decode`` runs the comparison."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests import fuzz_decode


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled, and every batch is told of."""
    monkeypatch.setattr(fuzz_decode, "compile_kernels", lambda options: None)
    monkeypatch.setattr(fuzz_decode, "TOLD_EVERY_S", 0.0)


def comparing(monkeypatch: pytest.MonkeyPatch, check: Callable[[int], bool]) -> None:
    monkeypatch.setattr(fuzz_decode, "check", lambda kernels, seed: check(seed))


def without_time(text: str) -> list[str]:
    return re.sub(r" in \d+ s:", ":", text).splitlines()


def test_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    comparing(monkeypatch, lambda seed: seed % 2 == 0)
    assert fuzz_decode.main(["--batches", "4", "--seed", "10"]) == 0
    told = capsys.readouterr()
    assert without_time(told.out) == ["from seed 10", "4 batches: 2 good, no difference"]
    assert without_time(told.err)[1:3] == [
        "1 batches: 1 good, no difference (25%)",
        "2 batches: 1 good, no difference (50%)",
    ]


def test_an_interrupted_run_tells_what_it_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(seed: int) -> bool:
        if seed == 3:
            raise KeyboardInterrupt
        return True

    comparing(monkeypatch, check)
    assert fuzz_decode.main(["--batches", "100", "--seed", "0"]) == 130
    told = without_time(capsys.readouterr().out)
    assert told[1:] == ["interrupted after 3 batches: 3 good, no difference"]


def test_a_difference_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(seed: int) -> bool:
        raise AssertionError(f"seed {seed}: differs")

    comparing(monkeypatch, check)
    with pytest.raises(AssertionError, match="seed 7"):
        fuzz_decode.main(["--batches", "1", "--seed", "7"])
