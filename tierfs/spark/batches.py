"""Arrow batches of each type of row, with just the columns that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tierfs.ledger.message_records import Message
from tierfs.ledger.messages import decode
from tierfs.scan.byte_batches import Block, read_blocks
from tierfs.scan.entry_batches import EntryBatch, read_entries
from tierfs.scan.fetching import Fetcher
from tierfs.scan.line_batches import Lines
from tierfs.scan.lines import LineFormat, read_lines
from tierfs.scan.planning import Partition
from tierfs.types import MIB

_JOINED_ROWS = 8192
"""Lines of small segments are joined up to so many rows: a batch of its own costs Spark a fifth of a millisecond."""

_JOINED_BYTES = MIB

Column = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads rows of one type, as batches of one schema."""

    schema: Any
    """Of Arrow."""

    def lines(self, fetcher: Fetcher, partition: Partition, form: LineFormat) -> Iterator[Any]:
        """Lines, a megabyte at a time."""
        wanted = set(self.schema.names)
        found = read_lines(fetcher, partition, form, with_offsets="offset" in wanted)
        names = [part.source.name for part in partition.parts]
        for group in _joined(found):
            yield self._lines(group, names)

    def bytes(self, fetcher: Fetcher, partition: Partition, block_bytes: int) -> Iterator[Any]:
        """Blocks of bytes, one a row."""
        for block in read_blocks(fetcher, partition, block_bytes):
            yield self._block(block, partition.parts[block.part].source.name)

    def entries(self, fetcher: Fetcher, partition: Partition) -> Iterator[Any]:
        """Entries of ledgers."""
        for batch in read_entries(fetcher, partition):
            yield self._entries(batch, partition.parts[batch.part].source.name)

    def messages(self, fetcher: Fetcher, partition: Partition) -> Iterator[Any]:
        """Messages of Pulsar in the entries of ledgers. Raises DataLoss for an entry that is damaged."""
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

    def _messages(self, found: list[Message], name: str) -> Any:
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
    """One array; the only one is not copied."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _messages(batch: EntryBatch) -> Iterator[Message]:
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
