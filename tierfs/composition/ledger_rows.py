"""The store's rows of a ledger's entries, compared with those that its objects show."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tierfs.errors import DataLoss
from tierfs.metadata import entries
from tierfs.metadata.ledger_records import EntryRun
from tierfs.metadata.store import MetadataStore
from tierfs.types import SegmentId
from tierfs.units import numbered

_RUNS_TOGETHER = 16
"""Read in one snapshot, so that none stays open for long."""


def stored_runs(metadata: MetadataStore, segment_id: SegmentId) -> Iterator[EntryRun]:
    """All rows of a ledger, in order, in many short snapshots."""
    after = 0
    while True:
        with metadata.read() as txn:
            runs = entries.runs(txn, segment_id, after)
            some = list(islice((one for one in runs if one.first_entry_id >= after), _RUNS_TOGETHER))
        if not some:
            return
        yield from some
        after = some[-1].end_entry_id


class StoredRows:
    """Walks over the rows of one ledger, once, beside what is found of its entries."""

    def __init__(self, metadata: MetadataStore, segment_id: SegmentId, frame_bytes: int) -> None:
        self._metadata = metadata
        self._segment_id = segment_id
        self._frame_bytes = frame_bytes
        self._runs = stored_runs(metadata, segment_id)
        self._run: EntryRun | None = None
        self._at = 0
        """The next entry of the run."""
        self.entries = 0
        """Compared so far."""

    def compare(self, found: EntryRun) -> None:
        """Raise DataLoss unless the store knows just these entries of these lengths at these places."""
        at = 0
        while at < len(found.lengths):
            run = self._current()
            if run is None:
                raise DataLoss(f"entry {self.entries} is in the object, and the store does not know of it")
            count = min(len(run.lengths) - self._at, len(found.lengths) - at)
            same = found.lengths[at : at + count] == run.lengths[self._at : self._at + count]
            if not same or self._place(found, at) != self._place(run, self._at):
                moved = numbered("entry", self.entries, self.entries + count, "are")
                raise DataLoss(f"{moved} not where the store says")
            at, self._at, self.entries = at + count, self._at + count, self.entries + count

    def are_empty(self, start: int, end: int) -> bool:
        """Whether the next entries, [start, end), have no bytes; they count as compared."""
        if start != self.entries:
            return False
        while self.entries < end and (run := self._current()) is not None:
            if run.lengths[self._at]:
                return False
            self._at, self.entries = self._at + 1, self.entries + 1
        return self.entries == end

    def rest(self) -> int:
        """How many entries the store knows of that were not compared."""
        with self._metadata.read() as txn:
            return entries.count(txn, self._segment_id) - self.entries

    def _current(self) -> EntryRun | None:
        """The run that has the next entry."""
        while self._run is None or self._at == len(self._run.lengths):
            following = next(self._runs, None)
            if following is None:
                return None
            self._run, self._at = following, 0
        return self._run

    def _place(self, run: EntryRun, at: int) -> int:
        return run.stored_offset + sum(run.lengths[:at]) + self._frame_bytes * at
