"""Registered Avro of ten fields: into Arrow columns, beside fastavro, which confluent-kafka reads it with."""

from __future__ import annotations

import io
import os
import struct
import time
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from benchmarks.measure import alternate
from benchmarks.report import Section, ratio, table
from millstream.avro.decoder import AvroDecoder
from millstream.avro.targets import targets

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
SAMPLE = 20_000
"""How many rows those read that make an object of each."""
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "country", "type": {"type": "enum", "name": "Country", "symbols": ["NO", "SE", "DK"]}},
        {"name": "price", "type": "double"},
        {"name": "quantity", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "weight", "type": ["null", "float"]},
    ],
}


def run() -> list[Section]:
    """Rows per second, on one thread."""
    values = _values(SAMPLE)
    column = pa.array(values * (ROWS // SAMPLE), pa.binary())
    contestants: dict[str, Callable[[], int]] = {
        "millstream": _decoder(column),
        "fastavro": _fastavro(values),
    }
    for work in contestants.values():
        work()  # warms up
    figures = alternate({name: _rate(work) for name, work in contestants.items()}, ROUNDS)
    cells = [f"{figures[name].median:,.0f} ({figures[name].spread})" for name in contestants]
    more = ratio(figures["millstream"].median, figures["fastavro"].median)
    setting = (
        f"{ROWS:,} values of ten fields in Confluent's format, {len(values[0])} B each, in memory, on one "
        f"thread. millstream makes Arrow columns, fastavro a dict of each value ({SAMPLE:,} of them): it is "
        "what confluent-kafka's AvroDeserializer calls. "
        f"In turns, medians of {ROUNDS}."
    )
    head = ("rows/s", *contestants, "millstream beside fastavro")
    return [Section("Avro to Arrow", f"{setting}\n\n{table(head, [('ten fields', *cells, more)])}")]


def _values(count: int) -> list[bytes]:
    parsed = fastavro.parse_schema(SCHEMA)
    made: list[bytes] = []
    for number in range(count):
        file = io.BytesIO()
        fastavro.schemaless_writer(
            file,
            parsed,
            {
                "id": number,
                "customer": f"customer-{number % 5000}",
                "country": ("NO", "SE", "DK")[number % 3],
                "price": number / 7,
                "quantity": number % 100,
                "paid": number % 2 == 0,
                "note": None if number % 4 else "by hand",
                "created": 1_700_000_000_000 + number,
                "amount": struct.pack(">i", number),
                "weight": None if number % 5 == 0 else 1.5,
            },
        )
        made.append(struct.pack(">bi", 0, 1) + file.getvalue())
    return made


def _rate(work: Callable[[], int]) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        return work() / (time.perf_counter() - began)

    return measure


def _decoder(column: pa.Array) -> Callable[[], int]:
    decoder = AvroDecoder(targets(SCHEMA))
    entry = decoder.compile(SCHEMA)

    def work() -> int:
        rows = 0
        for begin in range(0, len(column), 65_536):  # as scans and loads do
            part = column.slice(begin, 65_536)
            rows += decoder.decode(part, np.full(len(part), entry), 5).columns.num_rows
        return rows

    return work


def _fastavro(values: list[bytes]) -> Callable[[], int]:
    parsed = fastavro.parse_schema(SCHEMA)
    return lambda: len([fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed) for value in values])
