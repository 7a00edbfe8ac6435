"""Find the entries of a ledger's data object by reading it, and make the rows that describe them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, PayloadEncoding
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.ledger.block_reader import BlockEntryBatch, scan_batches
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import LedgerIndex
from tierfs.engine.metadata.ledger_records import MAX_RUN_ENTRIES, EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.ledger_objects import Pieces, batches, layout, read_index

# Requests at once, 8 MiB each (a guess).
_JOBS = 4

Take = Callable[[EntryRun], None]


class EntryRuns:
    """Makes rows of entries from frames: a row ends where the next frame is not adjacent, and when it is full."""

    def __init__(self, take: Take, payload_start: int = 0, first_entry_id: int = 0) -> None:
        """`payload_start` is the offset in the ledger of the first payload, that of entry `first_entry_id`."""
        self._take = take
        self._first = self._start = self._stored = 0
        self._lengths: list[int] = []
        self._next_offset = -1
        self.entries = first_entry_id
        """Id of the next entry."""
        self.payload_bytes = payload_start

    def add(self, batch: BlockEntryBatch, frame_bytes: int) -> None:
        """Take the next entries, which continue the ledger."""
        stored, lengths = batch.offset, batch.lengths
        while lengths:
            room = MAX_RUN_ENTRIES - len(self._lengths)
            if stored != self._next_offset or not room:
                self.cut()
                self._first, self._start, self._stored = self.entries, self.payload_bytes, stored
                room = MAX_RUN_ENTRIES
            taken, lengths = lengths[:room], lengths[room:]
            size = sum(taken)
            self._lengths.extend(taken)
            stored = self._next_offset = stored + size + frame_bytes * len(taken)
            self.entries += len(taken)
            self.payload_bytes += size

    def skip_empty(self, end_entry_id: int) -> None:
        """Count empty entries that are in none of the objects read."""
        self.cut()
        self.entries = end_entry_id

    def cut(self) -> None:
        """End the row; another object may continue at the same offset."""
        if self._lengths:
            lengths = tuple(self._lengths)
            run = EntryRun(
                first_entry_id=self._first, payload_start=self._start, lengths=lengths, stored_offset=self._stored
            )
            self._take(run)
        self._lengths = []
        self._next_offset = -1


def scan(storage: ChunkStorage, record: ObjectRecord) -> Iterator[EntryRun]:
    """Yield the rows of a ledger in Pulsar's blocks, the first entry first; reads all of the object.

    Its index locates the blocks; without one their headers do. Raises DataLoss for a missing entry, and the errors of
    the storage.
    """
    complete: list[EntryRun] = []
    runs = EntryRuns(complete.append, record.payload_start)
    data = storage.stat(record.name)
    with closing(Pieces(storage, _JOBS)) as pieces:
        for batch in _batches(storage, record, data, pieces):
            if batch.first_entry_id != runs.entries:
                raise DataLoss(f"{printable(data.name)}: entry {runs.entries} is missing")
            runs.add(batch, PayloadEncoding.PULSAR_BLOCK.frame_bytes)
            yield from complete
            complete.clear()
        runs.cut()
        yield from complete


def _batches(
    storage: ChunkStorage, record: ObjectRecord, data: StoredObject, pieces: Pieces
) -> Iterator[BlockEntryBatch]:
    deviations = Deviations()
    try:
        index = read_index(storage, storage.stat(record.index_name), deviations)
    except NotFound:
        source = DecoderSource(pieces.of(data, ByteRange(0, data.length_bytes)), 0, data.name)
        return (batch for _, batch in scan_batches(source, data.length_bytes, deviations))
    assert isinstance(index, LedgerIndex), "ours are of format 1"
    ledger = layout(index, data, deviations)
    return batches(DecoderSource(pieces.of(data, ledger.range), ledger.range.start, data.name), ledger, deviations)
