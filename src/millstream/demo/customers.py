"""The customers of the demo: the same ones in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

_WEIGHTS: Final = {
    "China": 16,
    "India": 15,
    "United States": 12,
    "Brazil": 8,
    "Nigeria": 7,
    "Germany": 6,
    "France": 6,
    "Portugal": 5,
    "Japan": 5,
    "Mexico": 5,
    "Kenya": 4,
    "Canada": 4,
    "Norway": 3,
    "Uruguay": 2,
    "New Zealand": 1,
    "Iceland": 1,
}
_SEED: Final = 11


class Customer(NamedTuple):
    """Who, and where from: the key and the value of a record."""

    name: str
    country: str


def customers(number: int) -> Iterator[Customer]:
    """So many customers, always the same."""
    chance = random.Random(_SEED)
    countries = chance.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()), k=number)
    for index, country in enumerate(countries, start=1):
        yield Customer(f"customer-{index:06d}", country)
