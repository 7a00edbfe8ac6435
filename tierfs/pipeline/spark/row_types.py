"""The types of rows, their columns, and what a task knows of the rows it makes.

Each Python process of Spark imports this: those that plan make no batches, and those that make batches do not plan. So
it needs no Arrow, whose import takes longer than a plan.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from enum import StrEnum

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    TimestampType,
)

from tierfs.base.bytes.frozen import dataclass
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.pipeline.reader.line_format import LineFormat

_ENTRY: dict[str, DataType] = {
    "ledger_id": LongType(),
    "entry_id": LongType(),
    "offset": LongType(),
    "payload": BinaryType(),
}


class RowType(StrEnum):
    """The kind of a row."""

    LINES = "lines"
    BYTES = "bytes"
    ENTRIES = "entries"
    MESSAGES = "messages"
    ROCKETMQ = "rocketmq"
    SEGMENTS = "segments"


@dataclass(frozen=True, slots=True)
class RowForm:
    """How a task makes rows of bytes."""

    row_type: RowType
    lines: LineFormat
    block_bytes: int
    zone: tzinfo = UTC
    """Of times in directories' names that name none."""


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """The fields of a row of type `segments`."""

    path: str
    record: SegmentRecord


ROW_COLUMNS: dict[RowType, dict[str, DataType]] = {
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
    RowType.ROCKETMQ: {
        "topic": StringType(),
        "queue_id": IntegerType(),
        "queue_offset": LongType(),
        "key": StringType(),
        "tags": StringType(),
        "payload": BinaryType(),
        "publish_time": TimestampType(),
        "store_time": TimestampType(),
        "properties": MapType(StringType(), StringType()),
        "segment": StringType(),
        "offset": LongType(),
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
        "birth": LongType(),
    },
}
