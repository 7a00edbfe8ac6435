"""Conditions that choose among directories named `column=value`. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.pipeline.reader.partition_directories import partition_value

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>[+-]?[0-9.]+)|(?P<name>`[^`]+`)|(?P<word>[^\s'`<>=!(),]+)"
    r"|(?P<sign><=|>=|<>|!=|==|[=<>(),]))"
)


@dataclass(frozen=True, slots=True)
class PartitionCondition:
    """A condition on the values of one column, any of several alternatives or none of them."""

    column: str
    """In lower case."""
    comparison: str
    """An operator, or `null`."""
    literals: tuple[str, ...] = ()
    negated: bool = False

    def holds(self, value: str | None) -> bool:
        """Return whether a value fulfils it; no value fulfils only `IS NULL`, as in SQL.

        Two numbers compare as numbers, everything else as text: ISO dates and times are in order then.
        """
        if self.comparison == "null":
            return (value is None) != self.negated
        if value is None:
            return False
        compare = _COMPARISONS[self.comparison]
        return any(compare(*_comparable(value, literal)) for literal in self.literals) != self.negated


def _comparable(value: str, literal: str) -> tuple[object, object]:
    if _NUMBER.fullmatch(value) and _NUMBER.fullmatch(literal):
        return Decimal(value), Decimal(literal)
    return value, literal


def admits(conditions: Iterable[PartitionCondition], directory: str) -> bool:
    """Return whether a directory's own name contradicts none of the conditions; `directory` is one component."""
    pair = partition_value(directory)
    return pair is None or all(
        condition.holds(pair[1]) for condition in conditions if condition.column == pair[0].lower()
    )


def parse_conditions(text: str) -> tuple[PartitionCondition, ...]:
    """Parse conditions joined by AND: comparisons, `[NOT] IN (…)`, `BETWEEN … AND …`, `IS [NOT] NULL`.

    Raises InvalidRequest with an example.
    """
    return tuple(_Parser(text).conditions())


class _Parser:
    """Reads conditions from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[Mapping[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            token = _TOKEN.match(text, at)
            if token is None:
                raise self._wrong()
            self._tokens.append({kind: value for kind, value in token.groupdict().items() if value is not None})
            at = token.end()
        self._tokens.reverse()

    def conditions(self) -> Iterator[PartitionCondition]:
        while True:
            yield from self._condition()
            if not self._tokens:
                return
            self._expect("AND")

    def _condition(self) -> Iterator[PartitionCondition]:
        token = self._next()
        column = (token.get("word") or token.get("name", "").strip("`")).lower()
        if not column:
            raise self._wrong()
        sign = self._next()
        if sign.get("sign") in _COMPARISONS:
            yield PartitionCondition(column, sign["sign"], (self._literal(),))
            return
        word = sign.get("word", "").upper()
        if word == "IS":
            negated = self._skip("NOT")
            self._expect("NULL")
            yield PartitionCondition(column, "null", negated=negated)
        elif word == "BETWEEN":
            yield PartitionCondition(column, ">=", (self._literal(),))
            self._expect("AND")
            yield PartitionCondition(column, "<=", (self._literal(),))
        else:
            negated = word == "NOT"
            if negated:
                self._expect("IN")
            elif word != "IN":
                raise self._wrong()
            yield PartitionCondition(column, "=", tuple(self._list()), negated)

    def _list(self) -> Iterator[str]:
        self._expect("(")
        yield self._literal()
        while self._skip(","):
            yield self._literal()
        self._expect(")")

    def _literal(self) -> str:
        token = self._next()
        if "text" in token:
            return token["text"][1:-1].replace("''", "'")
        if "number" not in token or not _NUMBER.fullmatch(token["number"]):
            raise self._wrong()
        return token["number"]

    def _next(self) -> Mapping[str, str]:
        if not self._tokens:
            raise self._wrong()
        return self._tokens.pop()

    def _skip(self, word: str) -> bool:
        """Take the next token if it is this one."""
        there = bool(self._tokens) and word in (self._tokens[-1].get("word", "").upper(), self._tokens[-1].get("sign"))
        if there:
            self._tokens.pop()
        return there

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise self._wrong()

    def _wrong(self) -> InvalidRequest:
        return InvalidRequest(
            f"invalid value {printable(self._text)!r} for option partitionFilter",
            remedy="expected conditions on directories, joined by AND: day >= '2031-01-01' AND hour IN (7, 8)",
        )
