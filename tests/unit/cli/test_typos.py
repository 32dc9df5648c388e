"""Which names are taken for slips of the fingers: those of haste, not those that people make alike."""

from __future__ import annotations

import pytest

from millstream.cli.errors.typos import edits, typo_of


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("ordres", "orders"),  # two letters swapped
        ("order", "orders"),
        ("orderss", "orders"),
        ("Orders", "orders"),
        ("oders", "orders"),
        ("costumers", "customers"),  # two letters changed, in a longer name
        ("order_items", "order-items"),
        ("orders-2026", "ordrs-2026"),
    ],
)
def test_a_slip(name: str, there: str) -> None:
    assert typo_of(name, ["payments", there]) == there
    assert typo_of(there, ["payments", name]) == name


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("orders", "orders"),
        ("orders-1", "orders-2"),
        ("orders2", "orders"),
        ("orders.v1", "orders.v2"),
        ("eu.orders", "us.orders"),
        ("team-a-orders", "team-b-orders"),
        ("orders", "payments"),
        ("orders", "orders-clean"),
        ("cat", "car"),
        ("a", "b"),
        ("audit-3f9a", "audit-77c1"),
    ],
)
def test_what_is_meant_as_it_stands(name: str, there: str) -> None:
    assert typo_of(name, [there]) is None
    assert typo_of(there, [name]) is None


def test_the_nearest_of_several() -> None:
    assert typo_of("customrs", ["cutomes", "customers"]) == "customers"
    assert typo_of("anything", []) is None


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [("", "", 0), ("", "ab", 2), ("ab", "ba", 1), ("abcd", "acbd", 1), ("kitten", "sitting", 3)],
)
def test_edits(name: str, other: str, expected: int) -> None:
    assert edits(name, other) == edits(other, name) == expected
