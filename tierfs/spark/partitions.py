"""One partition of a read on an executor: its plain data, and the Arrow batches made of it.

Batches have only the requested columns of their type of row. Rows of type `segments` hold the metadata of each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
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
from tierfs.ledger.messages import MessageRecord, decode
from tierfs.metadata.records import SegmentRecord
from tierfs.names import printable
from tierfs.scan.batches import Block, EntryBatch, Lines, read_blocks, read_entries
from tierfs.scan.extents import PlaceConnections
from tierfs.scan.fetching import ScanFetcher
from tierfs.scan.lines import LineFormat, read_lines
from tierfs.scan.planning import Partition
from tierfs.spark.options import ReadOptions, RowType
from tierfs.spark.planning import SegmentRow
from tierfs.types import MIB, Tier

_JOINED_ROWS = 8192
"""Rows up to which lines of small segments are joined: a batch of its own costs Spark a fifth of a millisecond."""

_JOINED_BYTES = MIB

Column = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads rows of one type, as batches of one schema."""

    schema: Any
    """The Arrow schema."""

    def lines(self, fetcher: ScanFetcher, partition: Partition, form: LineFormat) -> Iterator[Any]:
        """Yield lines, a megabyte at a time."""
        wanted = set(self.schema.names)
        found = read_lines(fetcher, partition, form, with_offsets="offset" in wanted)
        names = [part.source.name for part in partition.parts]
        for group in _joined(found):
            yield self._lines(group, names)

    def bytes(self, fetcher: ScanFetcher, partition: Partition, block_bytes: int) -> Iterator[Any]:
        """Yield blocks of bytes, one a row."""
        for block in read_blocks(fetcher, partition, block_bytes):
            yield self._block(block, partition.parts[block.part].source.name)

    def entries(self, fetcher: ScanFetcher, partition: Partition) -> Iterator[Any]:
        """Yield entries of ledgers."""
        for batch in read_entries(fetcher, partition):
            yield self._entries(batch, partition.parts[batch.part].source.name)

    def messages(self, fetcher: ScanFetcher, partition: Partition) -> Iterator[Any]:
        """Yield messages of Pulsar in the entries of ledgers. Raises DataLoss for an entry that is damaged."""
        for batch in read_entries(fetcher, partition):
            found = list(_messages(batch))
            if found:
                yield self._messages(found, partition.parts[batch.part].source.name)

    def _lines(self, group: list[tuple[int, Lines]], names: list[str]) -> Any:
        return self._batch(
            value=lambda: _concatenated([lines.values for _, lines in group]),
            offset=lambda: _concatenated([lines.offsets for _, lines in group]),
            segment=lambda: _repeated((names[part], len(lines.values)) for part, lines in group),
        )

    def _block(self, block: Block, name: str) -> Any:
        return self._batch(
            segment=lambda: _repeated([(name, 1)]),
            offset=lambda: pa.array([block.offset], pa.int64()),
            length=lambda: pa.array([len(block.content)], pa.int64()),
            content=lambda: pa.array([block.content], pa.binary()),
        )

    def _entries(self, batch: EntryBatch, name: str) -> Any:
        count = len(batch.lengths)
        starts = np.fromiter(accumulate(batch.lengths, initial=0), np.int64, count + 1)
        first = batch.first_entry_id
        return self._batch(
            ledger_id=lambda: pa.array([batch.ledger_id] * count, pa.int64()),
            entry_id=lambda: pa.array(np.arange(first, first + count, dtype=np.int64)),
            offset=lambda: pa.array(starts[:-1] + batch.start_offset),
            payload=lambda: pa.Array.from_buffers(
                pa.binary(), count, [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(batch.payloads)]
            ),
            segment=lambda: _repeated([(name, count)]),
        )

    def _messages(self, found: list[MessageRecord], name: str) -> Any:
        return self._batch(
            ledger_id=lambda: pa.array([one.ledger_id for one in found], pa.int64()),
            entry_id=lambda: pa.array([one.entry_id for one in found], pa.int64()),
            batch_index=lambda: pa.array([one.batch_index for one in found], pa.int32()),
            key=lambda: pa.array([one.key for one in found], pa.string()),
            payload=lambda: pa.array([None if one.null_value else one.payload for one in found], pa.binary()),
            publish_time=lambda: _times([one.publish_time_ms for one in found]),
            event_time=lambda: _times([one.event_time_ms for one in found]),
            producer_name=lambda: pa.array([one.producer_name for one in found], pa.string()),
            sequence_id=lambda: pa.array([one.sequence_id for one in found], pa.int64()),
            properties=lambda: pa.array(
                [list(one.properties.items()) for one in found], self.schema.field("properties").type
            ),
            segment=lambda: _repeated([(name, len(found))]),
        )

    def _batch(self, **columns: Column) -> Any:
        arrays = [columns[name]() for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _joined(found: Iterable[tuple[int, Lines]]) -> Iterator[list[tuple[int, Lines]]]:
    waiting: list[tuple[int, Lines]] = []
    rows = size_bytes = 0
    for part, lines in found:
        waiting.append((part, lines))
        rows += len(lines.values)
        size_bytes += lines.values.nbytes
        if rows >= _JOINED_ROWS or size_bytes >= _JOINED_BYTES:
            yield waiting
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield waiting


def _concatenated(arrays: list[Any]) -> Any:
    """Return one array; a single one is not copied."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _messages(batch: EntryBatch) -> Iterator[MessageRecord]:
    at = 0
    view = memoryview(batch.payloads)
    for entry_id, length in enumerate(batch.lengths, batch.first_entry_id):
        yield from decode(view[at : at + length], ledger_id=batch.ledger_id, entry_id=entry_id).messages
        at += length


def _repeated(runs: Iterable[tuple[str, int]]) -> Any:
    return _concatenated([pa.repeat(pa.scalar(name, pa.string()), count) for name, count in runs])


def _times(times_ms: list[int | None]) -> Any:
    micros = [None if one is None else one * 1000 for one in times_ms]
    return pa.array(micros, pa.timestamp("us", tz="UTC"))


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
    """Return one batch of the columns in `schema`."""
    columns = [
        [row.path for row in rows] if field.name == "segment" else [_VALUES[field.name](row.record) for row in rows]
        for field in schema
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
    """Return all columns of a type."""
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
    """Return the Arrow schema that Spark expects of batches."""
    return to_arrow_schema(schema, timezone="UTC")


class TierfsPartition(InputPartition):
    """The work of one task, as plain data."""


def read_partition(
    options: ReadOptions, place: Any, schema: StructType, value: Partition | tuple[SegmentRow, ...]
) -> Iterator[Any]:
    """Yield Arrow batches of one partition, on an executor."""
    arrow = arrow_schema(schema)
    if not isinstance(value, Partition):
        yield segments_batch(value, arrow)
        return
    rows = RowReader(arrow)
    sources = tuple(part.source for part in value.parts)
    with ScanFetcher(place, connections(), sources) as fetcher:
        if options.row_type is RowType.LINES:
            yield from rows.lines(fetcher, value, options.lines)
        elif options.row_type is RowType.BYTES:
            yield from rows.bytes(fetcher, value, options.block_bytes)
        elif options.row_type is RowType.ENTRIES:
            yield from rows.entries(fetcher, value)
        else:
            yield from rows.messages(fetcher, value)


_connections = PlaceConnections()


def connections() -> PlaceConnections:
    """Return the connections of this executor's process, kept from task to task."""
    return _connections
