"""Rows of type `segments`: what the metadata tell of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tierfs.metadata.records import SegmentRecord
from tierfs.spark.planning import SegmentRow
from tierfs.types import Tier

_VALUES: dict[str, Callable[[SegmentRecord], object]] = {
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
}
"""By column; times in microseconds, as Arrow has them."""


def segments_batch(rows: Sequence[SegmentRow], schema: Any) -> Any:
    """One batch of the columns in `schema`."""
    columns = [
        [row.path for row in rows] if field.name == "segment" else [_VALUES[field.name](row.record) for row in rows]
        for field in schema
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
