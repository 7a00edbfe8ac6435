"""The columns of a read: of its type of row, of each row's segment, and of the directories in the segment's name.

Those of the segment's record are made only if a schema names them: `segment_length`, as `length` in rows of type
`segments`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql.types import DataType, StructField, StructType, TimestampType

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import Tier
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.pipeline.spark.row_types import ROW_COLUMNS, RowType

# By column of rows of type `segments`; times in microseconds, as Arrow has them.
RECORD_VALUES: dict[str, Callable[[SegmentRecord], object]] = {
    "kind": lambda record: record.kind.name.lower(),
    "start_offset": lambda record: record.start_offset,
    "length": lambda record: record.length,
    "sealed": lambda record: record.sealed,
    "local_bytes": lambda record: record.readable_bytes(Tier.LOCAL),
    "cold_bytes": lambda record: record.readable_bytes(Tier.COLD),
    "local_chunks": lambda record: record.local.count,
    "cold_chunks": lambda record: record.cold.count,
    "created": lambda record: record.created_ms * 1000,
    "modified": lambda record: record.modified_ms * 1000,
    "generation": lambda record: record.generation,
    "segment_id": lambda record: record.id,
    "birth": lambda record: record.birth,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RECORD_COLUMNS = {f"segment_{name.removeprefix('segment_')}": name for name in RECORD_VALUES}


@dataclass(frozen=True, slots=True)
class SegmentColumns:
    """The columns of a schema that are the same in all rows of a segment, in lower case as Spark compares names."""

    of_record: tuple[str, ...]
    of_directories: tuple[str, ...]

    @classmethod
    def of(cls, row_type: RowType, schema: StructType) -> SegmentColumns:
        """Sort out the columns of a schema."""
        known = ROW_COLUMNS[row_type]
        more = [name for name in (field.name.lower() for field in schema.fields) if name not in known]
        record = () if row_type is RowType.SEGMENTS else tuple(name for name in more if name in _RECORD_COLUMNS)
        return cls(record, tuple(name for name in more if name not in record))

    def facts(self, record: SegmentRecord) -> tuple[object, ...]:
        """Return the values of the columns of a record."""
        return tuple(_fact(_RECORD_COLUMNS[name], record) for name in self.of_record)


def _fact(column: str, record: SegmentRecord) -> object:
    value = RECORD_VALUES[column](record)
    is_time = isinstance(ROW_COLUMNS[RowType.SEGMENTS][column], TimestampType)
    return _EPOCH + timedelta(microseconds=value) if is_time and isinstance(value, int) else value


def full_schema(row_type: RowType, directories: Mapping[str, DataType]) -> StructType:
    """Return all columns of a type, and those of directories.

    Raises InvalidRequest for a directory's column that rows have themselves.
    """
    known = ROW_COLUMNS[row_type]
    for name in directories:
        if name.lower() in known:
            raise InvalidRequest(
                f"directories {printable(name)}=… would add a column that rows of type {row_type} already have",
                remedy="give a schema, or set recursiveFileLookup to true",
            )
    return StructType([StructField(name, kind) for name, kind in {**known, **directories}.items()])


def require_columns(row_type: RowType, schema: StructType) -> None:
    """Raise InvalidRequest for a column that has another type in rows, or in records of segments."""
    known = ROW_COLUMNS[row_type]
    if not schema.fields:
        raise InvalidRequest("the schema has no column", remedy=f"rows of type {row_type} have {', '.join(known)}")
    for field in schema.fields:
        kind = known.get(field.name.lower())
        if kind is None and field.name.lower() in SegmentColumns.of(row_type, schema).of_record:
            kind = ROW_COLUMNS[RowType.SEGMENTS][_RECORD_COLUMNS[field.name.lower()]]
        if kind is not None and field.dataType != kind:
            raise InvalidRequest(
                f"the column {field.name} is {kind.simpleString()}, not {field.dataType.simpleString()}",
                remedy="read it as that type, and cast it afterwards",
            )


def unknown_column(row_type: RowType, name: str, directories: Mapping[str, object]) -> InvalidRequest:
    """Return the error of a column that neither rows have, nor segments, nor the directories."""
    known = [*ROW_COLUMNS[row_type], *directories]
    more = "" if row_type is RowType.SEGMENTS else f", of their segments {', '.join(_RECORD_COLUMNS)}"
    return InvalidRequest(
        f"rows of type {row_type} have no column {printable(name)}",
        remedy=f"they have {', '.join(map(printable, known))}{more}",
    )
