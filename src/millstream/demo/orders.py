"""The orders of the demo: the same ones in every run, and a few that are no orders at all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Final

from millstream.demo.customers import customers
from millstream.demo.feed import Sent

SCHEMA: Final = "id LONG NOT NULL, customer STRING, country STRING, price DOUBLE"
CHECK: Final = "price > 0"
BAD_SHARE: Final = 0.004
BAD: Final = "bad"
"""The label of an order that must be rejected; a good one's is its country."""
_SEED: Final = 12


def orders(number: int) -> Iterator[Sent]:
    """So many orders as JSON, always the same; about one in 250 is broken in one of three ways."""
    chance = random.Random(_SEED)
    for index, customer in enumerate(customers(number), start=1):
        order = {
            "id": index,
            "customer": customer.name,
            "country": customer.country,
            "price": round(chance.uniform(1, 500), 2),
        }
        label = customer.country
        text = json.dumps(order)
        if chance.random() < BAD_SHARE:
            label = BAD
            text = chance.choice([text[: len(text) // 2], _wrong_type(order), _negative(order)])
        yield Sent(customer.name, text, label)


def _wrong_type(order: dict[str, object]) -> str:
    return json.dumps({**order, "price": "a bargain"})


def _negative(order: dict[str, object]) -> str:
    return json.dumps({**order, "price": -1.0})
