"""The columns of each type of row, and the Arrow schema of those that were asked for."""

from __future__ import annotations

from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tierfs.errors import InvalidRequest
from tierfs.names import printable
from tierfs.spark.options import RowType

_ENTRY: dict[str, DataType] = {
    "ledger_id": LongType(),
    "entry_id": LongType(),
    "offset": LongType(),
    "payload": BinaryType(),
}

_COLUMNS: dict[RowType, dict[str, DataType]] = {
    RowType.LINES: {"value": StringType(), "segment": StringType(), "offset": LongType()},
    RowType.BYTES: {"segment": StringType(), "offset": LongType(), "length": LongType(), "content": BinaryType()},
    RowType.ENTRIES: {**_ENTRY, "segment": StringType()},
    RowType.MESSAGES: {
        "ledger_id": LongType(),
        "entry_id": LongType(),
        "batch_index": IntegerType(),
        "key": StringType(),
        "payload": BinaryType(),
        "publish_time": TimestampType(),
        "event_time": TimestampType(),
        "producer_name": StringType(),
        "sequence_id": LongType(),
        "properties": MapType(StringType(), StringType()),
        "segment": StringType(),
    },
    RowType.SEGMENTS: {
        "segment": StringType(),
        "kind": StringType(),
        "start_offset": LongType(),
        "length": LongType(),
        "sealed": BooleanType(),
        "local_bytes": LongType(),
        "cold_bytes": LongType(),
        "local_chunks": LongType(),
        "cold_chunks": LongType(),
        "created": TimestampType(),
        "modified": TimestampType(),
        "generation": LongType(),
        "segment_id": LongType(),
    },
}


def default_schema(row_type: RowType) -> StructType:
    """All columns of a type."""
    return StructType([StructField(name, kind) for name, kind in _COLUMNS[row_type].items()])


def require_columns(row_type: RowType, schema: StructType) -> None:
    """Raise InvalidRequest for a column that rows of this type do not have, or have as another type."""
    known = _COLUMNS[row_type]
    for field in schema.fields:
        if field.name not in known:
            raise InvalidRequest(
                f"rows of type {row_type} have no column {printable(field.name)}",
                remedy=f"they have {', '.join(known)}",
            )
        if field.dataType != known[field.name]:
            wanted = known[field.name].simpleString()
            raise InvalidRequest(
                f"the column {field.name} is {wanted}, not {field.dataType.simpleString()}", remedy="cast it afterwards"
            )
    if not schema.fields:
        raise InvalidRequest("the schema has no column", remedy=f"rows of type {row_type} have {', '.join(known)}")


def arrow_schema(schema: StructType) -> Any:
    """What Spark wants batches to have."""
    return to_arrow_schema(schema, timezone="UTC")
