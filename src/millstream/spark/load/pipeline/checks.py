"""Evaluates simple checks inside the task, over Arrow columns, with exactly Spark's semantics.

A row passes a check that is true; false and null reject it. Checks that may differ from Spark's semantics are
left to Spark (``compile_checks`` returns None); ``tests/spark/pipeline/test_checks.py`` compares the two.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError
from millstream.spark.load.pipeline import check_parser as syntax
from millstream.spark.load.pipeline.check_parser import NotSimpleError
from millstream.spark.load.pipeline.spark_schema import cast

if TYPE_CHECKING:
    import pyarrow as pa

FAILED: Final = "check failed: "
_EXACT_IN_DOUBLE: Final = 2**53

Evaluate = Callable[["pa.RecordBatch"], "pa.BooleanArray"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check that can be evaluated without Spark."""

    text: str
    evaluate: Evaluate


def compile_checks(checks: Sequence[str], schema: pa.Schema) -> tuple[Check, ...] | None:
    """All checks, ready to run over rows of this schema; None when one of them needs Spark.

    Raises ConfigError for a simple check that names an unknown column.
    """
    try:
        return tuple(Check(text, compile_check(text, schema)) for text in checks)
    except NotSimpleError:
        for text in checks:
            _check_names(text, schema)
        return None


def _check_names(text: str, schema: pa.Schema) -> None:
    known = {name.lower() for name in schema.names}
    for name in syntax.names_in(text):
        if name.lower() not in known:
            raw = "value" in schema.names and "offset" in schema.names
            hint = "; what values hold is known with a schema only" if raw else ""
            raise ConfigError(
                f"check {text!r}: there is no column {name!r}. There are {', '.join(schema.names)}{hint}",
                setting="checks",
            )


def compile_check(text: str, schema: pa.Schema) -> Evaluate:
    """One check; raises NotSimpleError."""
    condition = syntax.parse(text, {field.name: field.type for field in schema})
    return _compiled(condition, schema)


def failures(checks: Sequence[Check], rows: pa.RecordBatch) -> tuple[Any, list[str]]:
    """A mask of the rows that fail, and their reasons in order; None if none fails."""
    passed = [(check.text, _true(check.evaluate(rows))) for check in checks]
    failed = reduce(operator.or_, (~mask for _, mask in passed))
    if not failed.any():
        return None, []
    texts = [text for text, _ in passed]
    table = zip(*(mask[failed] for _, mask in passed), strict=True)
    return failed, [reason(text for text, fine in zip(texts, row, strict=True) if not fine) for row in table]


def reason(failed: Any) -> str:
    """The reason of a row that fails these checks."""
    return "; ".join(FAILED + text for text in failed)


def _true(mask: pa.BooleanArray) -> Any:
    return mask.fill_null(False).to_numpy(zero_copy_only=False)


def _compiled(condition: syntax.Condition, schema: pa.Schema) -> Evaluate:
    makers: dict[type, Callable[[Any, pa.Schema], Evaluate]] = {
        syntax.ColumnRef: _truth,
        syntax.Constant: _constant,
        syntax.Comparison: _comparison,
        syntax.IsNull: _is_null,
        syntax.Like: _like,
        syntax.Not: _not,
        syntax.Both: _both,
    }
    return makers[type(condition)](condition, schema)


def _truth(column: syntax.ColumnRef, schema: pa.Schema) -> Evaluate:
    import pyarrow as pa

    if not pa.types.is_boolean(schema.field(column.name).type):
        raise NotSimpleError
    return lambda rows: rows.column(column.name)


def _constant(constant: syntax.Constant, _: pa.Schema) -> Evaluate:
    import pyarrow as pa

    scalar = pa.scalar(constant.value, pa.bool_())
    return lambda rows: pa.repeat(scalar, rows.num_rows)


def _is_null(test: syntax.IsNull, _: pa.Schema) -> Evaluate:
    return lambda rows: rows.column(test.column.name).is_null()


def _not(condition: syntax.Not, schema: pa.Schema) -> Evaluate:
    import pyarrow.compute as pc

    inner = _compiled(condition.condition, schema)
    return lambda rows: pc.invert(inner(rows))


def _both(condition: syntax.Both, schema: pa.Schema) -> Evaluate:
    import pyarrow.compute as pc

    left, right = _compiled(condition.left, schema), _compiled(condition.right, schema)
    join = pc.or_kleene if condition.either else pc.and_kleene
    return lambda rows: join(left(rows), right(rows))


def _like(test: syntax.Like, schema: pa.Schema) -> Evaluate:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(schema.field(test.column.name).type):
        raise NotSimpleError
    return lambda rows: pc.match_like(rows.column(test.column.name), test.pattern)


# ---- comparisons


def _comparison(test: syntax.Comparison, schema: pa.Schema) -> Evaluate:
    kind = schema.field(test.left.name).type
    compare = _compare(test.operator)
    name = test.left.name
    if isinstance(test.right, syntax.ColumnRef):
        other = test.right.name
        _same_kind(kind, schema.field(other).type)
        return lambda rows: compare(rows.column(name), rows.column(other))
    prepare, scalar = _operands(kind, test.right.value)
    if _is_double(kind) and test.operator in (">", ">="):
        return _above(name, scalar, compare)
    return lambda rows: compare(prepare(rows.column(name)), scalar)


def _compare(sign: str) -> Any:
    import pyarrow.compute as pc

    return {
        "=": pc.equal,
        "!=": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }[sign]


def _is_double(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_float64(kind))


def _above(name: str, scalar: pa.Scalar, compare: Any) -> Evaluate:
    """For Spark, NaN is above every number."""
    import pyarrow.compute as pc

    def evaluate(rows: pa.RecordBatch) -> pa.BooleanArray:
        column = rows.column(name)
        return pc.or_(compare(column, scalar), pc.is_nan(column))

    return evaluate


def _same_kind(left: Any, right: Any) -> None:
    """Raise NotSimpleError for two columns whose comparison needs a conversion or knows NaN."""
    import pyarrow as pa

    alike = left == right and not pa.types.is_floating(left)
    simple = pa.types.is_integer(left) or pa.types.is_string(left) or pa.types.is_date(left)
    if not alike or not simple:
        raise NotSimpleError


def _operands(kind: Any, value: Any) -> tuple[Callable[[Any], Any], pa.Scalar]:
    """How the column is cast, and the constant in the same type."""
    import pyarrow as pa

    whole = isinstance(value, int) and not isinstance(value, bool)
    fits: list[tuple[bool, Any]] = [
        (bool(pa.types.is_boolean(kind)) and isinstance(value, bool), pa.bool_()),
        (bool(pa.types.is_integer(kind)) and whole, pa.int64()),
        (bool(pa.types.is_string(kind)) and isinstance(value, str), pa.string()),
        (bool(pa.types.is_date(kind)) and isinstance(value, date), pa.date32()),
    ]
    for fitting, common in fits:
        if fitting:
            return partial(cast, kind=common), pa.scalar(value, common)
    if _is_double(kind) and (whole or isinstance(value, float | Decimal)):
        return (lambda column: column), pa.scalar(_exact_double(value), pa.float64())
    if pa.types.is_decimal(kind) and (whole or isinstance(value, Decimal)):
        return _decimals(kind, Decimal(value))
    raise NotSimpleError


def _exact_double(value: float | Decimal) -> float:
    if isinstance(value, int) and abs(value) > _EXACT_IN_DOUBLE:
        raise NotSimpleError
    return float(value)


def _decimals(kind: Any, value: Decimal) -> tuple[Callable[[Any], Any], pa.Scalar]:
    """Cast to a decimal type that holds both exactly."""
    import pyarrow as pa

    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(kind.scale, -exponent)
    digits = max(kind.precision - kind.scale, len(value.as_tuple().digits) + exponent, 1) + scale
    if digits > 38:
        raise NotSimpleError
    common = pa.decimal128(digits, scale)
    return partial(cast, kind=common), pa.scalar(value, common)
