"""Read a ledger by entries: its bytes as one stream, cut where entries end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.types import MIB, ByteRange, SegmentId
from tierfs.engine.metadata import entries
from tierfs.engine.metadata.entries import PlacedEntry
from tierfs.engine.metadata.ledger_records import MAX_RUN_ENTRIES, EntryRun
from tierfs.engine.metadata.store import MetadataStore

# Rows read in one snapshot, so that none stays open for long.
_ROWS_TOGETHER = 16

# Takes one entry and its payload.
Emit = Callable[[PlacedEntry, bytes], None]

# Payloads read at once: a few requests, and all of the memory that a reader of entries takes.
_READ_TOGETHER_BYTES = 8 * MIB

# Returns the bytes of a range of the segment.
ReadRange = Callable[[ByteRange], Buffer]


def stored_runs(metadata: MetadataStore, segment_id: SegmentId) -> Iterator[EntryRun]:
    """Yield all rows of a ledger, in order, in many short snapshots."""
    after = 0
    while True:
        with metadata.read() as txn:
            runs = entries.runs(txn, segment_id, after)
            some = list(islice((run for run in runs if run.first_entry_id >= after), _ROWS_TOGETHER))
        if not some:
            return
        yield from some
        after = some[-1].end_entry_id


def placed_entries(metadata: MetadataStore, segment_id: SegmentId, start: int, end: int) -> Iterator[PlacedEntry]:
    """Yield entries [start, end) in order, some thousands per snapshot, so that none stays open for long."""
    while start < end:
        with metadata.read() as txn:
            batch = list(entries.placed(txn, segment_id, start, min(end, start + MAX_RUN_ENTRIES)))
        if not batch:
            return
        yield from batch
        start = batch[-1].entry_id + 1


def payloads(metadata: MetadataStore, segment_id: SegmentId, start: int, end: int, read: ReadRange) -> Iterator[bytes]:
    """Yield the payloads of entries [start, end) in order; `read` is asked for some MiB at a time."""
    together: list[ByteRange] = []
    for entry in placed_entries(metadata, segment_id, start, end):
        together.append(entry.range)
        if entry.range.end - together[0].start >= _READ_TOGETHER_BYTES:
            yield from _split(together, read)
            together = []
    if together:
        yield from _split(together, read)


def _split(ranges: list[ByteRange], read: ReadRange) -> Iterator[bytes]:
    whole = ByteRange(ranges[0].start, ranges[-1].end)
    view = memoryview(read(whole) if whole else b"")
    for entry_range in ranges:
        yield bytes(entry_range.of(view, whole.start))


class EntrySplitter:
    """Cuts a stream of the payloads of consecutive entries into entries again."""

    def __init__(self, places: Iterator[PlacedEntry], emit: Emit) -> None:
        self._places = places
        self._emit = emit
        self._begun = bytearray()
        self._entry = next(places, None)
        self._emit_whole()

    def write(self, data: Buffer) -> None:
        """Take the next bytes; they are copied."""
        view = memoryview(data)
        while view and self._entry is not None:
            taken = view[: self._entry.range.length_bytes - len(self._begun)]
            self._begun += taken
            view = view[len(taken) :]
            self._emit_whole()

    def _emit_whole(self) -> None:
        """Emit the complete entry, and the empty entries that follow."""
        while self._entry is not None and len(self._begun) == self._entry.range.length_bytes:
            payload, self._begun = bytes(self._begun), bytearray()
            self._emit(self._entry, payload)
            self._entry = next(self._places, None)
