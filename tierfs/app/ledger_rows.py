"""The rows of one ledger's entries, compared with the entries that its objects list."""

from __future__ import annotations

from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import SegmentId
from tierfs.base.words.units import numbered
from tierfs.engine.metadata import entries
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.entries import stored_runs


class StoredRows:
    """Walks over the rows of one ledger, once, in step with the entries of its objects."""

    def __init__(self, metadata: MetadataStore, segment_id: SegmentId, frame_bytes: int) -> None:
        self._metadata = metadata
        self._segment_id = segment_id
        self._frame_bytes = frame_bytes
        self._runs = stored_runs(metadata, segment_id)
        self._run: EntryRun | None = None
        self._at = 0
        """Index of the next entry in the run."""
        self.entries = 0
        """Number compared so far."""

    def compare(self, shown: EntryRun) -> None:
        """Raise DataLoss unless the store knows just these entries of these lengths at these places."""
        at = 0
        while at < len(shown.lengths):
            run = self._current()
            if run is None:
                raise DataLoss(f"entry {self.entries} is in the object, but not in the store")
            count = min(len(run.lengths) - self._at, len(shown.lengths) - at)
            same = shown.lengths[at : at + count] == run.lengths[self._at : self._at + count]
            # Entries without bytes have no places where the journal alone told of them.
            placed = run.stored_offset > 0 or any(run.lengths)
            if not same or (placed and self._place(shown, at) != self._place(run, self._at)):
                moved = numbered("entry", self.entries, self.entries + count, "are")
                raise DataLoss(f"{moved} not at the position in the store's records")
            at, self._at, self.entries = at + count, self._at + count, self.entries + count

    def are_empty(self, start: int, end: int) -> bool:
        """Return whether the next entries, [start, end), have no bytes; they count as compared."""
        if start != self.entries:
            return False
        while self.entries < end and (run := self._current()) is not None:
            if run.lengths[self._at]:
                return False
            self._at, self.entries = self._at + 1, self.entries + 1
        return self.entries == end

    def rest(self) -> int:
        """Return the number of entries the store knows of that were not compared."""
        with self._metadata.read() as txn:
            return entries.count(txn, self._segment_id) - self.entries

    def _current(self) -> EntryRun | None:
        """Return the run that has the next entry."""
        while self._run is None or self._at == len(self._run.lengths):
            following = next(self._runs, None)
            if following is None:
                return None
            self._run, self._at = following, 0
        return self._run

    def _place(self, run: EntryRun, at: int) -> int:
        return run.stored_offset + sum(run.lengths[:at]) + self._frame_bytes * at
