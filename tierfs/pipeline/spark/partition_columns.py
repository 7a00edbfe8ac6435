"""Columns of directories `column=value`: their types as Spark infers them of files' paths, and their values.

Without Arrow, whose import takes longer than a plan: drivers infer, tasks convert.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, tzinfo
from decimal import Context, Decimal, InvalidOperation

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.pipeline.reader.partition_directories import partition_values, value_of
from tierfs.pipeline.spark.columns import SegmentColumns, unknown_column
from tierfs.pipeline.spark.row_types import RowType

_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_WHOLE = re.compile("[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?)")
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9])?")
# Of Spark's decimals.
_MOST_DIGITS = 38
# Python's default context has 28 digits.
_DECIMALS = Context(prec=2 * _MOST_DIGITS)
# Java's parseDouble trims it: a no-break space makes a text, and control characters are escaped where Spark infers.
_BLANK = " "
# Digits of decimals that hold all whole numbers of a type, by Spark's rule.
_DIGITS: dict[type[DataType], int] = {IntegerType: 10, LongType: 20}

# The different values of each column, as directories are written.
PartitionTexts = Mapping[str, frozenset[str | None]]


def texts_of(directories: Iterable[str]) -> PartitionTexts:
    """Return the columns of all directories of a table, given by their names below its base.

    Directories without columns are no part of it. Raises InvalidRequest unless all others have the same columns.
    """
    first: tuple[str, ...] | None = None
    by_column: dict[str, set[str | None]] = defaultdict(set)
    shown = ""
    for directory in sorted(set(directories)):
        values = partition_values(directory)
        columns = tuple(column.lower() for column, _ in values)
        if not columns:
            continue
        if len(set(columns)) < len(columns):
            raise InvalidRequest(
                f"the directory {printable(directory)} has a column twice", remedy="set recursiveFileLookup to true"
            )
        if first is None:
            first, shown = columns, directory
            spelling = {column.lower(): column for column, _ in values}
        if columns != first:
            raise InvalidRequest(
                f"directories have different columns: {printable(shown)} and {printable(directory)}",
                remedy="select some by a glob and basePath, or set recursiveFileLookup to true, which adds no columns",
            )
        for column, value in values:
            by_column[spelling[column.lower()]].add(value)
    return {column: frozenset(texts) for column, texts in by_column.items()}


def texts_in(names: Iterable[str]) -> PartitionTexts:
    """Return the columns of all directories in segments' full names, in lower case."""
    by_column: dict[str, set[str | None]] = defaultdict(set)
    for directory in {name.rpartition("/")[0] for name in names}:
        for column, text in partition_values(directory):
            by_column[column.lower()].add(text)
    return {column: frozenset(texts) for column, texts in by_column.items()}


def require_values(row_type: RowType, schema: StructType, texts: PartitionTexts, zone: tzinfo) -> None:
    """Raise InvalidRequest for a column that directories do not have, or of which a value is not of its type.

    `texts`: by column in lower case.
    """
    wanted = SegmentColumns.of(row_type, schema).of_directories
    for field in (field for field in schema.fields if field.name.lower() in wanted):
        convert = converter(field.dataType, zone)
        if field.name.lower() not in texts:
            raise unknown_column(row_type, field.name, texts)
        for text in texts[field.name.lower()]:
            if text is not None:
                converted(convert, field.name, text, field.dataType)


def converted(convert: Callable[[str], object], column: str, text: str, kind: DataType) -> object:
    """Return a directory's value as Arrow takes it. Raises InvalidRequest for one that is not of the column's type."""
    try:
        return convert(text)
    except ValueError:
        raise InvalidRequest(
            f"the value of directory {printable(column)}={printable(text)} is not a valid {kind.simpleString()}",
            remedy=f"give a schema in which {printable(column)} is a string",
        ) from None


def values_by_name(row_type: RowType, schema: StructType, zone: tzinfo) -> dict[str, Callable[[str], object]]:
    """Return for each column of directories, in lower case, what makes its value of a segment's full name."""
    wanted = SegmentColumns.of(row_type, schema).of_directories
    return {
        field.name.lower(): _of_name(field.name, field.dataType, zone)
        for field in schema.fields
        if field.name.lower() in wanted
    }


def _of_name(column: str, kind: DataType, zone: tzinfo) -> Callable[[str], object]:
    convert = converter(kind, zone)

    def of_name(name: str) -> object:
        text = value_of(name.rpartition("/")[0], column.lower())
        return None if text is None else converted(convert, column, text, kind)

    return of_name


def inferred(texts: Iterable[str | None]) -> DataType:
    """Return the type of a column's values by Spark's rules for partitions; a string where none is known."""
    types = [_type_of(text) for text in texts if text is not None]
    kinds = {type(kind) for kind in types}
    if len(kinds) == 1 and DecimalType not in kinds:
        return types[0]
    if kinds and kinds <= {IntegerType, LongType, DecimalType}:
        if DecimalType not in kinds:
            return LongType()
        digits = (kind.precision if isinstance(kind, DecimalType) else _DIGITS[type(kind)] for kind in types)
        return DecimalType(min(_MOST_DIGITS, max(digits)), 0)
    if kinds == {IntegerType, DoubleType}:
        return DoubleType()
    return TimestampType() if kinds == {DateType, TimestampType} else StringType()


def _type_of(text: str) -> DataType:
    if _WHOLE.fullmatch(text):
        for kind in (IntegerType, LongType):
            if _fits(int(text), _BITS[kind]):
                return kind()
    if _REAL.fullmatch(text.strip(_BLANK)):
        digits = _whole_digits(text)
        return DecimalType(digits, 0) if digits is not None and digits <= _MOST_DIGITS else DoubleType()
    if _DATE.fullmatch(text) and _is_time(text):
        return DateType()
    return TimestampType() if _TIME.fullmatch(text) and _is_time(text) else StringType()


def _whole_digits(text: str) -> int | None:
    """Return the digits of a number that is written without a fraction, None for another."""
    try:
        number = Decimal(text) if text == text.strip(_BLANK) else Decimal("NaN")
    except InvalidOperation:
        return None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < 0 or "." in text.rstrip("."):
        return None
    return len(number.as_tuple().digits) + exponent


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits - 1) <= number < 1 << bits - 1


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def converter(kind: DataType, zone: tzinfo = UTC) -> Callable[[str], object]:
    """Return the function that makes Arrow's values of texts, and raises ValueError for one that is not of the type.

    `zone`: of times that name none. Raises InvalidRequest for a type that no directory's value has.
    """
    if isinstance(kind, TimestampType):
        return lambda text: _time(text, zone)
    if isinstance(kind, DecimalType):
        return lambda text: _decimal(text, kind)
    if type(kind) in _BITS:
        return lambda text: _whole(text, _BITS[type(kind)])
    try:
        return _CONVERTERS[type(kind)]
    except KeyError:
        raise InvalidRequest(
            f"a column of directories cannot have the type {kind.simpleString()}",
            remedy="read it as string, and cast it afterwards",
        ) from None


def _whole(text: str, bits: int) -> int:
    if not _WHOLE.fullmatch(text) or not _fits(int(text), bits):
        raise ValueError(text)
    return int(text)


def _real(text: str) -> float:
    trimmed = text.strip(_BLANK)
    if not _REAL.fullmatch(trimmed):
        raise ValueError(text)
    return float(trimmed.rstrip("dDfF"))


def _decimal(text: str, kind: DecimalType) -> Decimal:
    try:
        number = Decimal(text)
        exact = number.quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMALS)
    except InvalidOperation:
        raise ValueError(text) from None
    if exact != number or len(exact.as_tuple().digits) > kind.precision:
        raise ValueError(text)
    return exact


def _time(text: str, zone: tzinfo) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=zone)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_CONVERTERS: dict[type[DataType], Callable[[str], object]] = {
    StringType: str,
    DoubleType: _real,
    FloatType: _real,
    DateType: date.fromisoformat,
    BooleanType: _boolean,
}
