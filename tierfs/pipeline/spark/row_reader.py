"""Makes Arrow batches of the rows of one type.

Batches have only the requested columns of their type of row. Rows of type `segments` hold the metadata of each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import MIB
from tierfs.pipeline.reader.block_batches import Block, read_blocks
from tierfs.pipeline.reader.fetching import ScanFetcher, ScanSource
from tierfs.pipeline.reader.line_batches import Lines, Wanted, int64s
from tierfs.pipeline.reader.line_format import LineFormat
from tierfs.pipeline.reader.lines import read_lines, read_whole
from tierfs.pipeline.reader.planning import Part, Partition
from tierfs.pipeline.spark.columns import RECORD_VALUES
from tierfs.pipeline.spark.errors import SPARK
from tierfs.pipeline.spark.row_types import SegmentRow

if TYPE_CHECKING:
    from tierfs.engine.ledger.message_records import MessageRecord
    from tierfs.pipeline.reader.entry_batches import EntryBatch
    from tierfs.pipeline.reader.log_messages import PlacedMessage

# Rows up to which lines of small segments are joined: a batch of its own costs Spark a fifth of a millisecond.
_JOINED_ROWS = 8192

_JOINED_BYTES = MIB

# Offsets in Arrow's strings have 32 bits.
_MOST_TEXT_BYTES = (1 << 31) - 1

Column = Callable[[], Any]

# The rows of a batch by the segment that they are of.
Runs = Sequence[tuple[ScanSource, int]]

OfSource = Callable[[ScanSource], object]

# By column of directories, in lower case: makes its value of a segment's full name.
ByName = Mapping[str, Callable[[str], object]]

# Times have the zone UTC, which 4.0 and 4.1 need not be told.
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if SPARK >= (4, 2) else {}


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads rows of one type, as batches of one schema."""

    schema: Any
    """The Arrow schema."""
    of_segment: Mapping[str, OfSource]
    """By column in lower case: its value in all rows of a segment."""

    def lines(self, fetcher: ScanFetcher, partition: Partition, form: LineFormat) -> Iterator[Any]:
        """Yield lines, a megabyte at a time; whole segments as one line each, if that is their form."""
        if form.whole:
            lines = read_whole(fetcher, partition, form)
        else:
            lines = read_lines(fetcher, partition, form, Wanted(self._has("value"), self._has("offset")))
        for group in _joined(lines):
            yield self._lines(group, partition.parts)

    def bytes(self, fetcher: ScanFetcher, partition: Partition, block_bytes: int) -> Iterator[Any]:
        """Yield blocks of bytes, one a row."""
        for block in read_blocks(fetcher, partition, block_bytes, with_content=self._has("content")):
            yield self._block(block, partition.parts[block.part].source)

    def entries(self, fetcher: ScanFetcher, partition: Partition) -> Iterator[Any]:
        """Yield entries of ledgers."""
        from tierfs.pipeline.reader.entry_batches import read_entries  # as in `messages`: other rows do not need it

        for batch in read_entries(fetcher, partition, with_payloads=self._has("payload")):
            yield self._entries(batch, partition.parts[batch.part].source)

    def messages(self, fetcher: ScanFetcher, partition: Partition) -> Iterator[Any]:
        """Yield messages of Pulsar in the entries of ledgers. Raises DataLoss for an entry that is damaged."""
        from tierfs.pipeline.reader.entry_batches import read_entries

        for batch in read_entries(fetcher, partition, with_payloads=True):
            rows = list(_messages(batch))
            if rows:
                yield self._messages(rows, partition.parts[batch.part].source)

    def log_messages(self, fetcher: ScanFetcher, partition: Partition) -> Iterator[Any]:
        """Yield messages of commit logs of RocketMQ. Raises DataLoss for one that is damaged."""
        from tierfs.pipeline.reader.log_messages import read_messages  # which other types of rows do not need

        for part, messages in read_messages(fetcher, partition):
            yield self._log_messages(messages, partition.parts[part].source)

    def _has(self, column: str) -> bool:
        return column in (name.lower() for name in self.schema.names)

    def _lines(self, group: list[tuple[int, Lines]], parts: Sequence[Part]) -> Any:
        return self._batch(
            [(parts[part].source, lines.count) for part, lines in group],
            value=lambda: _concatenated([lines.values for _, lines in group]),
            offset=lambda: _concatenated([lines.offsets for _, lines in group]),
        )

    def _block(self, block: Block, source: ScanSource) -> Any:
        return self._batch(
            [(source, 1)],
            offset=lambda: int64s([block.offset]),
            length=lambda: int64s([block.length_bytes]),
            content=lambda: _joined_values(pa.binary(), [block.content]),
        )

    def _entries(self, batch: EntryBatch, source: ScanSource) -> Any:
        count = len(batch.lengths)
        starts = np.fromiter(accumulate(batch.lengths, initial=0), np.int64, count + 1)
        first = batch.first_entry_id
        return self._batch(
            [(source, count)],
            ledger_id=lambda: _ids(batch.ledger_id, count),
            entry_id=lambda: int64s(np.arange(first, first + count)),
            offset=lambda: int64s(starts[:-1] + batch.start_offset),
            payload=lambda: pa.Array.from_buffers(
                pa.binary(), count, [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(batch.payloads)]
            ),
        )

    def _messages(self, rows: list[MessageRecord], source: ScanSource) -> Any:
        return self._batch(
            [(source, len(rows))],
            ledger_id=lambda: pa.array([row.ledger_id for row in rows], pa.int64()),
            entry_id=lambda: pa.array([row.entry_id for row in rows], pa.int64()),
            batch_index=lambda: pa.array([row.batch_index for row in rows], pa.int32()),
            key=lambda: pa.array([row.key for row in rows], pa.string()),
            payload=lambda: pa.array([None if row.null_value else row.payload for row in rows], pa.binary()),
            publish_time=lambda: _times([row.publish_time_ms for row in rows]),
            event_time=lambda: _times([row.event_time_ms for row in rows]),
            producer_name=lambda: pa.array([row.producer_name for row in rows], pa.string()),
            sequence_id=lambda: pa.array([row.sequence_id for row in rows], pa.int64()),
            properties=lambda: pa.array([list(row.properties.items()) for row in rows], self._kinds()["properties"]),
        )

    def _log_messages(self, rows: Sequence[PlacedMessage], source: ScanSource) -> Any:
        messages = [message for _, message in rows]
        properties = [message.properties for message in messages]
        return self._batch(
            [(source, len(rows))],
            topic=lambda: pa.array([message.topic for message in messages], pa.string()),
            queue_id=lambda: pa.array([message.queue_id for message in messages], pa.int32()),
            queue_offset=lambda: int64s([message.queue_offset for message in messages]),
            key=lambda: pa.array([each.get("KEYS") for each in properties], pa.string()),
            tags=lambda: pa.array([each.get("TAGS") for each in properties], pa.string()),
            payload=lambda: pa.array([message.body for message in messages], pa.binary()),
            publish_time=lambda: _times([message.born_ms for message in messages]),
            store_time=lambda: _times([message.store_ms for message in messages]),
            properties=lambda: pa.array([list(each.items()) for each in properties], self._kinds()["properties"]),
            offset=lambda: int64s([offset for offset, _ in rows]),
        )

    def _kinds(self) -> dict[str, Any]:
        return {field.name.lower(): field.type for field in self.schema}

    def _batch(self, runs: Runs, **columns: Column) -> Any:
        arrays = [self._array(field, runs, columns) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, field: Any, runs: Runs, columns: Mapping[str, Column]) -> Any:
        name = field.name.lower()
        if name in columns:
            return columns[name]()
        if name == "segment":
            return _repeated(((source.name, count) for source, count in runs), field.type)
        value = self.of_segment[name]
        return _repeated(((value(source), count) for source, count in runs), field.type)


def _joined(batches: Iterable[tuple[int, Lines]]) -> Iterator[list[tuple[int, Lines]]]:
    waiting: list[tuple[int, Lines]] = []
    rows = size_bytes = 0
    for part, lines in batches:
        waiting.append((part, lines))
        rows += lines.count
        size_bytes += lines.nbytes
        if rows >= _JOINED_ROWS or size_bytes >= _JOINED_BYTES:
            yield waiting
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield waiting


def _concatenated(arrays: list[Any]) -> Any:
    """Return one array; a single one is not copied."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _messages(batch: EntryBatch) -> Iterator[MessageRecord]:
    from tierfs.engine.ledger.messages import decode  # Pulsar's protocol, which other types of rows do not need

    at = 0
    view = memoryview(batch.payloads)
    for entry_id, length in enumerate(batch.lengths, batch.first_entry_id):
        yield from decode(view[at : at + length], ledger_id=batch.ledger_id, entry_id=entry_id).messages
        at += length


def _repeated(runs: Iterable[tuple[object, int]], kind: Any) -> Any:
    """Return each value as often as stated; without pandas, as `int64s`."""
    values, counts = zip(*runs, strict=True)
    encoded = [_text(value).encode() for value in values]
    size_bytes = sum(len(text) * count for text, count in zip(encoded, counts, strict=True))
    if pa.types.is_string(kind) and None not in values and size_bytes <= _MOST_TEXT_BYTES:
        return _tiled(encoded, counts)
    texts = _joined_values(pa.string(), encoded)
    if None in values:
        there = pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))
        texts = pa.Array.from_buffers(pa.string(), len(values), [there, *texts.buffers()[1:]])
    if pa.types.is_timestamp(kind):
        texts = texts.cast(pa.timestamp(kind.unit))  # Arrow parses times with a zone only if the text names one
    return texts.cast(kind).take(int64s(np.repeat(np.arange(len(values)), counts)))


def _tiled(values: Sequence[bytes], counts: Sequence[int]) -> Any:
    """Return an array of strings, each as often as stated: an eighth of the time of `take` (measured)."""
    ends = np.zeros(sum(counts) + 1, np.int32)
    ends[1:] = np.repeat([len(value) for value in values], counts)
    np.cumsum(ends, out=ends)
    data = b"".join(value * count for value, count in zip(values, counts, strict=True))
    return pa.Array.from_buffers(pa.string(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _text(value: object) -> str:
    """Return a value as Arrow parses it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _joined_values(kind: Any, values: Sequence[bytes]) -> Any:
    """Return an array of strings or bytes."""
    ends = np.fromiter(accumulate(map(len, values), initial=0), np.int32, len(values) + 1)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def _ids(ledger_id: int | None, count: int) -> Any:
    return pa.nulls(count, pa.int64()) if ledger_id is None else int64s(np.full(count, ledger_id))


def _times(times_ms: list[int | None]) -> Any:
    micros = [None if time_ms is None else time_ms * 1000 for time_ms in times_ms]
    return pa.array(micros, pa.timestamp("us", tz="UTC"))


def segments_batch(rows: Sequence[SegmentRow], schema: Any, by_name: ByName) -> Any:
    """Return one batch of the columns in `schema`."""
    arrays = [pa.array(_values(rows, field.name.lower(), by_name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(rows: Sequence[SegmentRow], column: str, by_name: ByName) -> list[object]:
    if column in RECORD_VALUES:
        return [RECORD_VALUES[column](row.record) for row in rows]
    return [by_name[column](row.path) for row in rows] if column in by_name else [row.path for row in rows]


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark expects of batches."""
    return to_arrow_schema(schema, **_IN_UTC)
