"""Reading a ledger by entries: its bytes as one stream, cut where entries end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tierfs.checksum import Buffer
from tierfs.metadata import entries
from tierfs.metadata.entries import PlacedEntry
from tierfs.metadata.ledger_records import MAX_RUN_ENTRIES
from tierfs.metadata.store import MetadataStore
from tierfs.types import SegmentId

Emit = Callable[[PlacedEntry, bytes], None]
"""Takes one entry and its payload."""


def placed_entries(metadata: MetadataStore, segment_id: SegmentId, start: int, end: int) -> Iterator[PlacedEntry]:
    """Entries [start, end) in order, some thousands per snapshot, so that none stays open for long."""
    while start < end:
        with metadata.read() as txn:
            found = list(entries.placed(txn, segment_id, start, min(end, start + MAX_RUN_ENTRIES)))
        if not found:
            return
        yield from found
        start = found[-1].entry_id + 1


class EntrySplitter:
    """Cuts the payloads of consecutive entries, which come as a stream of bytes, into entries again."""

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
        """Hand over what is complete, and the empty entries that follow."""
        while self._entry is not None and len(self._begun) == self._entry.range.length_bytes:
            payload, self._begun = bytes(self._begun), bytearray()
            self._emit(self._entry, payload)
            self._entry = next(self._places, None)
