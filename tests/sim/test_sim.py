"""Consumers and their group under a virtual clock, a seeded network and a seeded scheduler: see README.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.families import isolated, new_topic, run_seed
from tests.sim.faults import FAULTS
from tests.sim.mutations import MUTATIONS, catch
from tests.sim.scale import settle_large_group

_ROOT = Path(__file__).parents[2]
_SEEDS = 160
_BLOCK = 20


@pytest.mark.parametrize("start", range(0, _SEEDS, _BLOCK))
def test_invariants_hold(start: int) -> None:
    for seed in range(start, start + _BLOCK):
        result, _ = run_seed(seed)
        assert result.violation is None, f"python -m tests.sim --seed {seed} --trace"


def test_a_member_that_is_cut_off_lets_go() -> None:
    for seed in range(10):
        result, _ = run_seed(seed, family=isolated)
        assert result.violation is None, f"seed {seed}"


def test_one_rebalance_covers_a_new_topic_and_a_new_member() -> None:
    for seed in range(10):
        result, _ = run_seed(seed, family=new_topic)
        assert result.violation is None, f"seed {seed}"


def test_same_seed_same_trace() -> None:
    for seed in (3, 8, 21):
        first, lines = run_seed(seed, tracing=True)
        second, again = run_seed(seed, tracing=True)
        assert (first, lines) == (second, again)
        assert run_seed(seed)[0].digest == first.digest, "tracing must not change anything"
    assert run_seed(3)[0].digest != run_seed(4)[0].digest


def test_same_trace_in_another_process() -> None:
    """No order may come from hashes, which Python seeds anew for each process."""
    digests = {_digest_elsewhere(seed=5, hash_seed=hash_seed) for hash_seed in (1, 2)}
    assert digests == {f"{run_seed(5)[0].digest:08x}"}


def _digest_elsewhere(seed: int, hash_seed: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--seed", str(seed)],
        cwd=_ROOT,
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()[0].rpartition(" ")[2]


def test_failure_names_its_seed_and_replays() -> None:
    found = catch(MUTATIONS["acknowledges-early"], range(20))
    assert found is not None
    assert found == catch(MUTATIONS["acknowledges-early"], range(found[0], found[0] + 1))


@pytest.mark.parametrize("name", MUTATIONS)
def test_planted_bug_is_caught(name: str) -> None:
    assert catch(MUTATIONS[name], range(300)) is not None, MUTATIONS[name].description


def test_every_planted_bug_is_documented() -> None:
    readme = (Path(__file__).parent / "README.md").read_text()
    for name, mutation in MUTATIONS.items():
        assert f"| `{name}` | {mutation.description} |" in readme


def test_every_fault_is_documented() -> None:
    readme = (Path(__file__).parent / "README.md").read_text()
    for fault in FAULTS:
        assert f"| `{fault.__name__}` | {fault.__doc__} |" in readme


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_large_group_settles(strategy: str) -> None:
    joined, left, joined_again = settle_large_group(members=40, partitions=400, strategy=strategy)
    assert joined.generations == 1
    assert left.generations == 1
    assert joined_again.generations == (2 if strategy == "cooperative-sticky" else 1)
