"""Parses simple checks: comparisons of columns with constants, joined by AND, OR and NOT.

Only what certainly means the same as in Spark is parsed; everything else is left to Spark. Column names must
match exactly, so that no session setting can make a difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

from millstream.spark.load.pipeline.formats.texts import read_date


class NotSimpleError(Exception):
    """The check is not a simple one: leave it to Spark."""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the rows."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, text, date or boolean."""

    value: int | Decimal | float | str | bool | date


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``, with operators = != < <= > >=."""

    operator: str
    left: ColumnRef
    right: ColumnRef | Constant


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``."""

    column: ColumnRef


@dataclass(frozen=True, slots=True)
class Like:
    """``column LIKE 'pattern'``."""

    column: ColumnRef
    pattern: str


@dataclass(frozen=True, slots=True)
class Not:
    """NOT; of null it is null."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Both:
    """AND, or OR where ``either``."""

    left: Condition
    right: Condition
    either: bool


Condition = ColumnRef | Constant | Comparison | IsNull | Like | Not | Both

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<quoted>`[^`]+`)|(?P<text>'[^'\\]*'(?!'))"
    r"|(?P<sign><=>|<=|>=|<>|!=|==|[=<>(),-]))",
    re.ASCII,
)
_COMPARISONS: Final = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_TURNED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_KEYWORDS: Final = {
    "AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "LIKE", "TRUE", "FALSE", "CASE", "EXISTS", "INTERVAL",
}  # fmt: skip
_NOT_A_NAME: Final = re.compile(r"current_\w+|user|session_user|localtime(stamp)?", re.IGNORECASE)
"""Functions that Spark accepts without parentheses."""
_MOST_DIGITS: Final = 15
"""Numbers with at most this many digits are exact in every type that they are compared in."""
_DEEPEST: Final = 50


def parse(text: str, columns: Mapping[str, Any]) -> Condition:
    """The condition of a simple check; raises NotSimpleError for others."""
    return _CheckParser(text, columns).condition()


def names_in(text: str) -> list[str]:
    """The columns that a simple check names, whether they exist or not; empty for other checks.

    Names that Spark also knows as functions are left out.
    """
    names = _AnyName()
    try:
        parse(text, names)
    except NotSimpleError:
        return []
    return [name for name in names.asked if not _NOT_A_NAME.fullmatch(name)]


class _AnyName(dict[str, Any]):
    """Contains every name, and remembers which were looked up."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __contains__(self, name: object) -> bool:
        self.asked.append(str(name))
        return True


class _CheckParser:
    def __init__(self, text: str, columns: Mapping[str, Any]) -> None:
        self._columns = columns
        self._tokens = _scan(text)
        self._at = 0
        self._depth = 0

    def condition(self) -> Condition:
        found = self._either()
        if self._kind() != "end":
            raise NotSimpleError
        return found

    def _kind(self, ahead: int = 0) -> str:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)][0]

    def _text(self, ahead: int = 0) -> str:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)][1]

    def _word(self, *words: str) -> bool:
        """Consume these keywords or signs if they come next."""
        for ahead, word in enumerate(words):
            if self._kind(ahead) not in ("word", "sign") or self._text(ahead).upper() != word:
                return False
        self._at += len(words)
        return True

    def _need(self, word: str) -> None:
        if not self._word(word):
            raise NotSimpleError

    def _either(self) -> Condition:
        found = self._both()
        while self._word("OR"):
            found = Both(found, self._both(), either=True)
        return found

    def _both(self) -> Condition:
        found = self._not()
        while self._word("AND"):
            found = Both(found, self._not(), either=False)
        return found

    def _not(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotSimpleError
        try:
            return Not(self._not()) if self._word("NOT") else self._predicate()
        finally:
            self._depth -= 1

    def _predicate(self) -> Condition:
        if self._word("("):
            found = self._either()
            self._need(")")
            if self._kind() == "sign" and self._text() != ")":
                raise NotSimpleError  # the result of a condition is compared
            return found
        left = self._operand()
        operator = _COMPARISONS.get(self._text()) if self._kind() == "sign" else None
        if operator is not None:
            self._at += 1
            return _comparison(operator, left, self._operand())
        return self._test(left)

    def _test(self, left: ColumnRef | Constant) -> Condition:
        """A predicate in words after an operand; without one the operand must be a boolean itself."""
        if isinstance(left, Constant):
            if isinstance(left.value, bool):
                return left
            raise NotSimpleError
        if self._word("IS"):
            negated = self._word("NOT")
            self._need("NULL")
            return _negated(IsNull(left), negated)
        negated = self._word("NOT")
        if self._word("BETWEEN"):
            low = _comparison(">=", left, self._operand())
            self._need("AND")
            return _negated(Both(low, _comparison("<=", left, self._operand()), either=False), negated)
        if self._word("IN"):
            return _negated(self._in(left), negated)
        if self._word("LIKE"):
            return _negated(self._like(left), negated)
        if negated:
            raise NotSimpleError
        return left

    def _in(self, left: ColumnRef) -> Condition:
        self._need("(")
        found: Condition = _comparison("=", left, self._constant())
        while self._word(","):
            found = Both(found, _comparison("=", left, self._constant()), either=True)
        self._need(")")
        return found

    def _like(self, left: ColumnRef) -> Condition:
        pattern = self._constant().value
        if not isinstance(pattern, str) or (self._kind() == "word" and self._text().upper() == "ESCAPE"):
            raise NotSimpleError
        return Like(left, pattern)

    def _operand(self) -> ColumnRef | Constant:
        kind, text = self._kind(), self._text()
        if kind == "quoted":
            return self._column(text[1:-1])
        if kind == "word" and text.upper() not in _KEYWORDS and self._kind(1) != "text":
            return self._column(text)
        return self._constant()

    def _column(self, name: str) -> ColumnRef:
        self._at += 1
        if name not in self._columns or self._text() == "(":
            raise NotSimpleError
        return ColumnRef(name)

    def _constant(self) -> Constant:
        negative = self._word("-")
        kind, text = self._kind(), self._text()
        self._at += 1
        if kind == "number":
            return Constant(_number(("-" if negative else "") + text))
        if negative:
            raise NotSimpleError
        if kind == "text":
            return Constant(text[1:-1])
        if kind == "word" and text.upper() in ("TRUE", "FALSE"):
            return Constant(text.upper() == "TRUE")
        if kind == "word" and text.upper() == "DATE" and self._kind() == "text":
            self._at += 1
            return Constant(_date(self._text(-1)[1:-1]))
        raise NotSimpleError


def _scan(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotSimpleError
        found.append((match.lastgroup or "", match[0].strip()))
        at = match.end()
    return [*found, ("end", "")]


def _comparison(operator: str, left: ColumnRef | Constant, right: ColumnRef | Constant) -> Comparison:
    if isinstance(left, ColumnRef):
        return Comparison(operator, left, right)
    if isinstance(right, ColumnRef):
        return Comparison(_TURNED[operator], right, left)
    raise NotSimpleError


def _negated(condition: Condition, negated: bool) -> Condition:
    return Not(condition) if negated else condition


def _number(text: str) -> int | Decimal | float:
    """As in Spark: with an exponent it is a DOUBLE, with a point a DECIMAL."""
    if sum(sign.isdigit() for sign in text) > _MOST_DIGITS:
        raise NotSimpleError
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def _date(text: str) -> date:
    try:
        return read_date(text)
    except ValueError as error:
        raise NotSimpleError from error
