"""The instructions of a program, what nodes store, and what the error codes of records mean.

An instruction is four numbers: its operation, the node (a column, or a part of one) that it appends to or -1,
and two more. Operations below ``LONGS`` first read a long.
"""

from __future__ import annotations

from typing import Final

OPERATIONS: Final = (
    "SKIP_LONG", "SKIP_SIZED", "INT32", "INT64", "LONG_AS_FLOAT", "LONG_AS_DOUBLE", "MILLIS", "ENUM", "UNION",
    "SIZED", "SIZED_DECIMAL",
    # those above read a long
    "SKIP", "BOOLEAN", "FLOAT", "DOUBLE", "FLOAT_AS_DOUBLE", "FIXED", "FIXED_DECIMAL", "FIXED_UUID", "NULL",
    "STRUCT", "LIST_END", "LOOP", "NEXT", "JUMP", "CONSTANT", "RESUME", "FAIL", "END",
)  # fmt: skip
OP: Final = {name: number for number, name in enumerate(OPERATIONS)}
LONGS: Final = OP["SKIP"]

NOTHING, BYTE, WORD, LONG, DECIMAL, VARIABLE, LIST = range(7)
"""What a node stores for each value, besides whether it is null."""

ERRORS: Final = (
    "",
    "the bytes end too early",
    "a length is negative or longer than the value",
    "an index of a union or an enum is not in the schema",
    "a number does not fit 32 bits",
    "text is not UTF-8",
    "a number does not fit the decimal's precision",
    "a boolean is neither 0 nor 1",
    "an array has too many items without bytes",
    "null, but the column is NOT NULL",
    "a timestamp does not fit 64 bits",
    "the columns of a batch become too large",
    "a number does not fit 64 bits",
    "bytes are left over",
    "a time is not within a day",
)
"""What the error codes say."""
NOT_NULL: Final = ERRORS.index("null, but the column is NOT NULL")
