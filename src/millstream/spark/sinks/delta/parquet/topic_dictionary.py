"""The names of topics as places in a list of words, as Parquet stores them: nobody hashes the same name a
million times.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_COLUMNS: Final = ("topic", "_topic")


def with_words(table: pa.Table) -> pa.Table:
    """The table with its column of topics, if it is text, in Arrow's encoding by a dictionary."""
    for name in _COLUMNS:
        place = table.schema.get_field_index(name)
        if place >= 0 and pa.types.is_string(table.schema.field(place).type):
            table = table.set_column(place, name, _encoded(table[name])).unify_dictionaries()
    return table


def _encoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Batches of one partition have pieces of one and the same array: that is encoded once."""
    done: dict[tuple[Any, ...], pa.DictionaryArray] = {}
    for chunk in sorted(column.chunks, key=len, reverse=True):
        if (where := _lies_at(chunk)) not in done:
            done[where] = chunk.dictionary_encode()
    pieces = [done[_lies_at(chunk)].slice(0, len(chunk)) for chunk in column.chunks]
    return pa.chunked_array(pieces, pa.dictionary(pa.int32(), pa.string()))


def _lies_at(chunk: pa.Array) -> tuple[Any, ...]:
    """Two arrays that begin at the same place in the same memory are the same, as far as both go."""
    return (chunk.offset, *(None if buffer is None else buffer.address for buffer in chunk.buffers()))
