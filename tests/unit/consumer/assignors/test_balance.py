"""The arithmetic behind the sticky assignors, against trying every possibility."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import comb, prod

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from millstream.consumer.assignors.balance import PartitionBlock, balance

Counts = list[dict[int, int]]
Score = tuple[int, int, int]


def score(blocks: Sequence[PartitionBlock], owned: Counts, held: Counts) -> Score:
    """Unevenness, partitions across racks, and partitions that left their owner: each the less the better."""
    unevenness = sum(sum(counts.values()) ** 2 for counts in held)
    across = sum(
        count
        for member, counts in enumerate(held)
        for block, count in counts.items()
        if member in blocks[block].far
    )
    lost = sum(
        max(0, count - held[member].get(block, 0))
        for member, counts in enumerate(owned)
        for block, count in counts.items()
    )
    return unevenness, across, lost


def everyone(block: PartitionBlock) -> list[int]:
    return sorted([*block.near, *block.far])


def divisions(total: int, ways: int) -> Iterator[tuple[int, ...]]:
    if ways == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in divisions(total - first, ways - 1):
            yield first, *rest


def every_possibility(blocks: Sequence[PartitionBlock], members: int) -> Iterator[Counts]:
    for choice in product(*(divisions(block.size, len(everyone(block))) for block in blocks)):
        held: Counts = [{} for _ in range(members)]
        for number, (block, counts) in enumerate(zip(blocks, choice, strict=True)):
            for member, count in zip(everyone(block), counts, strict=True):
                held[member][number] = count
        yield held


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[PartitionBlock], Counts]:
    size = draw(st.integers(1, 5))
    blocks: list[PartitionBlock] = []
    owned: Counts = [{} for _ in range(size)]
    members = st.lists(st.integers(0, size - 1), min_size=1, unique=True)
    for number in range(draw(st.integers(1, 4))):
        takers = sorted(draw(members))
        far = frozenset(draw(st.lists(st.sampled_from(takers)))) if draw(st.booleans()) else frozenset[int]()
        block = PartitionBlock(
            draw(st.integers(1, 5)), [member for member in takers if member not in far], far
        )
        blocks.append(block)
        left = block.size
        for member in draw(st.permutations(takers)):
            count = draw(st.integers(0, left))
            if count:
                owned[member][number] = count
                left -= count
    return blocks, owned


A_SURPLUS_IS_NOT_ALL_THAT_IS_HELD = (
    [
        PartitionBlock(1, [0, 2, 3], frozenset({1})),
        PartitionBlock(5, [0], frozenset({1, 2, 3})),
        PartitionBlock(2, [], frozenset({1, 2})),
    ],
    [{}, {1: 1}, {}, {}],
)


@settings(max_examples=200, deadline=None)
@given(problems())
@example(A_SURPLUS_IS_NOT_ALL_THAT_IS_HELD)
def test_no_possibility_is_better(problem: tuple[list[PartitionBlock], Counts]) -> None:
    blocks, owned = problem
    assume(prod(comb(b.size + len(everyone(b)) - 1, b.size) for b in blocks) <= 1000)
    held = balance(blocks, owned)
    check_possible(blocks, held)
    best = min(score(blocks, owned, other) for other in every_possibility(blocks, len(owned)))
    assert score(blocks, owned, held) == best


def check_possible(blocks: Sequence[PartitionBlock], held: Counts) -> None:
    for number, block in enumerate(blocks):
        assert sum(counts.get(number, 0) for counts in held) == block.size
    for member, counts in enumerate(held):
        assert all(count > 0 and member in everyone(blocks[block]) for block, count in counts.items())


@pytest.mark.parametrize(
    ("blocks", "owned", "expected"),
    [
        pytest.param(
            [PartitionBlock(4, [0, 1]), PartitionBlock(1, [1, 2]), PartitionBlock(1, [2, 3])],
            [{}, {0: 4}, {1: 1}, {2: 1}],
            [2, 2, 1, 1],
            id="a direct move is enough",
        ),
        pytest.param(
            [PartitionBlock(3, [0, 1]), PartitionBlock(2, [1, 2]), PartitionBlock(1, [2, 3])],
            [{0: 3}, {1: 2}, {2: 1}, {}],
            [2, 2, 1, 1],
            id="one move leads to the next",
        ),
        pytest.param(
            [PartitionBlock(9, [0]), PartitionBlock(4, [0, 1, 2])],
            [{1: 4}, {}, {}],
            [9, 2, 2],
            id="who must have much gets none of the rest",
        ),
        pytest.param([PartitionBlock(1, [0])], [{}, {}], [1, 0], id="a member that wants nothing"),
        pytest.param([], [{}, {}], [0, 0], id="nothing to divide"),
    ],
)
def test_loads(blocks: list[PartitionBlock], owned: Counts, expected: list[int]) -> None:
    assert [sum(counts.values()) for counts in balance(blocks, owned)] == expected


def test_the_odd_ones_stay_with_those_who_have_them() -> None:
    # Seven for three members: whoever has three now keeps them, wherever it stands in the order.
    for lucky in range(3):
        owned = [{0: 3 if member == lucky else 2} for member in range(3)]
        assert balance([PartitionBlock(7, [0, 1, 2])], owned) == owned
