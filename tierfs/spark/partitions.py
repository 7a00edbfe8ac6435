"""One partition of a read on an executor: its plain data, and the Arrow batches made of it.

Batches have only the requested columns of their type of row. Rows of type `segments` hold the metadata of each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tierfs.metadata.records import SegmentRecord
from tierfs.scan.batches import Block, EntryBatch, Lines, int64s, read_blocks, read_entries
from tierfs.scan.extents import Place, PlaceConnections
from tierfs.scan.fetching import ScanFetcher
from tierfs.scan.line_format import LineFormat
from tierfs.scan.lines import read_lines
from tierfs.scan.planning import Partition
from tierfs.spark.errors import SPARK, explained
from tierfs.spark.row_types import RowForm, RowType, SegmentRow
from tierfs.types import MIB, Tier

if TYPE_CHECKING:
    from tierfs.ledger.messages import MessageRecord
    from tierfs.spark.planning import ReadPlan

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
            offset=lambda: int64s([block.offset]),
            length=lambda: int64s([len(block.content)]),
            content=lambda: _joined_values(pa.binary(), [block.content]),
        )

    def _entries(self, batch: EntryBatch, name: str) -> Any:
        count = len(batch.lengths)
        starts = np.fromiter(accumulate(batch.lengths, initial=0), np.int64, count + 1)
        first = batch.first_entry_id
        return self._batch(
            ledger_id=lambda: _ids(batch.ledger_id, count),
            entry_id=lambda: int64s(np.arange(first, first + count)),
            offset=lambda: int64s(starts[:-1] + batch.start_offset),
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
    from tierfs.ledger.messages import decode  # Pulsar's protocol, which other types of rows do not need

    at = 0
    view = memoryview(batch.payloads)
    for entry_id, length in enumerate(batch.lengths, batch.first_entry_id):
        yield from decode(view[at : at + length], ledger_id=batch.ledger_id, entry_id=entry_id).messages
        at += length


def _repeated(runs: Iterable[tuple[str, int]]) -> Any:
    """Return each name as often as stated; without pandas, as `int64s`."""
    names, counts = zip(*runs, strict=True)
    values = _joined_values(pa.string(), [name.encode() for name in names])
    return values.take(int64s(np.repeat(np.arange(len(names)), counts)))


def _joined_values(kind: Any, values: Sequence[bytes]) -> Any:
    """Return an array of strings or bytes."""
    ends = np.fromiter(accumulate(map(len, values), initial=0), np.int32, len(values) + 1)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def _ids(ledger_id: int | None, count: int) -> Any:
    return pa.nulls(count, pa.int64()) if ledger_id is None else int64s(np.full(count, ledger_id))


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


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark expects of batches."""
    return to_arrow_schema(schema, **_IN_UTC)


_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if SPARK >= (4, 2) else {}
"""Times have the zone UTC, which 4.0 and 4.1 need not be told."""


class TierfsPartition(InputPartition):
    """The work of one task, as plain data."""


class TierfsReader(DataSourceReader):
    """A planned read. Executors get it without the plan: Spark sends each partition by itself."""

    def __init__(self, form: RowForm, schema: StructType, planned: ReadPlan) -> None:
        self._form = form
        self._schema = schema
        self._place = planned.place
        self._planned = [TierfsPartition(one) for one in planned.partitions]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planned": []}

    def partitions(self) -> list[InputPartition]:
        """Return the plan; Spark makes one empty partition of an empty list."""
        return list(self._planned)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield batches of one partition, on an executor."""
        if partition.value is None:
            return
        with explained():
            yield from read_partition(self._form, self._place, self._schema, partition.value)


@dataclass(frozen=True, slots=True)
class StretchReader:
    """The part of a stream's reader that executors get: partitions bring everything else."""

    schema: StructType

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield batches of one partition."""
        with explained():
            form, place, value = partition.value
            yield from read_partition(form, place, self.schema, value)


def read_partition(
    form: RowForm, place: Place, schema: StructType, value: Partition | tuple[SegmentRow, ...]
) -> Iterator[Any]:
    """Yield Arrow batches of one partition, on an executor."""
    arrow = arrow_schema(schema)
    if not isinstance(value, Partition):
        yield segments_batch(value, arrow)
        return
    rows = RowReader(arrow)
    sources = tuple(part.source for part in value.parts)
    with ScanFetcher(place, connections(), sources) as fetcher:
        if form.row_type is RowType.LINES:
            yield from rows.lines(fetcher, value, form.lines)
        elif form.row_type is RowType.BYTES:
            yield from rows.bytes(fetcher, value, form.block_bytes)
        elif form.row_type is RowType.ENTRIES:
            yield from rows.entries(fetcher, value)
        else:
            yield from rows.messages(fetcher, value)


_connections = PlaceConnections()


def connections() -> PlaceConnections:
    """Return the connections of this executor's process, kept from task to task."""
    return _connections
