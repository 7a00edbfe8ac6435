"""One partition of a read on an executor: what a task gets, and the Arrow batches it makes of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from tierfs.scan.fetching import Fetcher
from tierfs.scan.places import Connections
from tierfs.scan.planning import Partition
from tierfs.spark.batches import RowReader
from tierfs.spark.options import ReadOptions, RowType
from tierfs.spark.planning import SegmentRow
from tierfs.spark.schemas import arrow_schema
from tierfs.spark.segment_rows import segments_batch


class TierfsPartition(InputPartition):
    """What one task reads, as plain data."""


def read_partition(
    options: ReadOptions, place: Any, schema: StructType, value: Partition | tuple[SegmentRow, ...]
) -> Iterator[Any]:
    """Arrow batches of what one partition holds, on an executor."""
    arrow = arrow_schema(schema)
    if not isinstance(value, Partition):
        yield segments_batch(value, arrow)
        return
    rows = RowReader(arrow)
    sources = tuple(part.source for part in value.parts)
    with Fetcher(place, connections(), sources) as fetcher:
        if options.row_type is RowType.LINES:
            yield from rows.lines(fetcher, value, options.lines)
        elif options.row_type is RowType.BYTES:
            yield from rows.bytes(fetcher, value, options.block_bytes)
        elif options.row_type is RowType.ENTRIES:
            yield from rows.entries(fetcher, value)
        else:
            yield from rows.messages(fetcher, value)


_connections = Connections()


def connections() -> Connections:
    """The connections of this executor's process, kept from task to task."""
    return _connections
