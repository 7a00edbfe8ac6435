"""Fields that a table is partitioned by: a column, or the year, month, day or hour of a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, StructType, TimestampNTZType, TimestampType

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable

_FIELD = re.compile(r"(?:(?P<transform>[a-z]+)\((?P<of>[^()]+)\)|(?P<column>[^()]+))")
_HOUR_US, _DAY_US = 3_600_000_000, 86_400_000_000
_EPOCH_YEAR = 1970
_MONTHS = 12


class TimePart(StrEnum):
    """A part of a time, by Iceberg's names."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field."""

    column: str
    transform: TimePart = TimePart.IDENTITY

    @property
    def text(self) -> str:
        """The field as --partition-by has it."""
        return self.column if self.transform is TimePart.IDENTITY else f"{self.transform}({self.column})"

    @property
    def name(self) -> str:
        """Its name, Iceberg's for such a field."""
        return self.column if self.transform is TimePart.IDENTITY else f"{self.column}_{self.transform}"

    def value(self) -> Column:
        """Return its value in a row: times in UTC, as Iceberg counts them since 1970."""
        column = F.col(_quoted(self.column))
        if self.transform is TimePart.IDENTITY:
            return column
        day = F.date_add(F.lit("1970-01-01").cast("date"), F.floor(_micros(column) / _DAY_US).cast("int"))
        if self.transform is TimePart.DAY:
            return day
        if self.transform is TimePart.HOUR:
            return F.floor(_micros(column) / _HOUR_US).cast("int")
        years = F.year(day) - _EPOCH_YEAR
        return years if self.transform is TimePart.YEAR else years * _MONTHS + F.month(day) - 1

    def require_in(self, schema: StructType) -> None:
        """Raise InvalidRequest if a table has no such column, or one that holds no time where one is needed."""
        kinds = {each.name: each.dataType for each in schema.fields}
        kind = kinds.get(self.column)
        if kind is None:
            raise InvalidRequest(
                f"the table has no column {printable(self.column)} to partition by",
                remedy=f"its columns: {', '.join(map(printable, kinds))}",
            )
        if self.transform is not TimePart.IDENTITY and not _is_time(kind):
            raise InvalidRequest(
                f"{self.text} needs a time, and {printable(self.column)} is {kind.simpleString()}",
                remedy="add a column with a time: --column 'NAME=to_timestamp(…)'",
            )


def parse_fields(texts: Sequence[str]) -> tuple[PartitionField, ...]:
    """Return fields such as `host` and `day(at)`. Raises InvalidRequest."""
    return tuple(_field(text.strip()) for text in texts if text.strip())


def _field(text: str) -> PartitionField:
    match = _FIELD.fullmatch(text)
    transform = (match["transform"] or "identity").removesuffix("s") if match else ""
    if match is None or transform not in [*TimePart]:
        raise InvalidRequest(
            f"{printable(text)} is no field to partition by", remedy="use COLUMN, year(…), month(…), day(…) or hour(…)"
        )
    return PartitionField((match["of"] or match["column"]).strip(), TimePart(transform))


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, DateType | TimestampType | TimestampNTZType)


def _micros(column: Column) -> Column:
    """Return a time in microseconds since 1970, in whatever zone the session is."""
    return F.unix_micros(column.cast("timestamp"))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
