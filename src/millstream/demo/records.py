"""The demo's records: customers and orders, the same in every run, and a few broken orders."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

SCHEMA: Final = "id LONG NOT NULL, customer STRING, country STRING, price DOUBLE"
CHECK: Final = "price > 0"
BAD: Final = "bad"
"""The label of a broken order; the label of a good one is its country."""
_BAD_SHARE: Final = 0.004
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
_CUSTOMERS_SEED: Final = 11
_ORDERS_SEED: Final = 12


class DemoRecord(NamedTuple):
    """A record, and the label under which the demo counts it."""

    key: str
    value: str
    label: str


class Customer(NamedTuple):
    """A customer's name, and the country."""

    name: str
    country: str


def customers(number: int) -> Iterator[Customer]:
    """``number`` customers."""
    chance = random.Random(_CUSTOMERS_SEED)
    countries = chance.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()), k=number)
    for index, country in enumerate(countries, start=1):
        yield Customer(f"customer-{index:06d}", country)


def customer_records(number: int) -> Iterator[DemoRecord]:
    """Customers with the name as key and the country as value."""
    return (DemoRecord(one.name, one.country, one.country) for one in customers(number))


def order_records(number: int) -> Iterator[DemoRecord]:
    """``number`` orders as JSON; about one in 250 is broken: cut off, a wrong type, or a negative price."""
    chance = random.Random(_ORDERS_SEED)
    for index, customer in enumerate(customers(number), start=1):
        price = round(chance.uniform(1, 500), 2)
        order = {"id": index, "customer": customer.name, "country": customer.country, "price": price}
        label, text = customer.country, json.dumps(order)
        if chance.random() < _BAD_SHARE:
            broken = [json.dumps({**order, "price": wrong}) for wrong in ("a bargain", -1.0)]
            label, text = BAD, chance.choice([text[: len(text) // 2], *broken])
        yield DemoRecord(customer.name, text, label)


def differing(sent: Mapping[str, int], found: Mapping[str, int]) -> tuple[str, ...]:
    """The countries whose numbers are not equal."""
    every = {*sent, *found} - {BAD}
    return tuple(sorted(one for one in every if sent.get(one) != found.get(one)))
