"""Lists the segments of a stream's selection.

The list is made again when a number was given, as for each new or unsealed segment; else only the segments that
are not finished are checked. So a stream over very many sealed segments costs little while one of them grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tierfs.base.bytes.joins import Join
from tierfs.base.words import names, units
from tierfs.base.words.errors import InvalidRequest, NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, SegmentId, SegmentKind
from tierfs.engine.metadata import chains, directories, entries
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.pipeline.reader.record_ends import entry_at
from tierfs.pipeline.reader.selection import Selection, select
from tierfs.pipeline.reader.stream_losses import Elsewhere, JoinedAway, MovedAway
from tierfs.pipeline.reader.stream_plan import ListedSegment, StreamOffset, unfinished


class Listing:
    """The segments of a selection. Used by one thread at a time."""

    def __init__(self, selection: Selection, *, cold_only: bool, of_entries: bool) -> None:
        """`cold_only`: segments end where the cold tier does; `of_entries`: positions are of entries, not of bytes."""
        self._selection = selection
        self._cold_only = cold_only
        self._of_entries = of_entries
        self._next_id = 0
        self._listed: dict[SegmentId, ListedSegment] = {}

    def at(self, txn: ReadTransaction, start: StreamOffset) -> tuple[ListedSegment, ...]:
        """Return the segments as they are now; of those finished at `start` only that they exist.

        Raises InvalidRequest for a segment that is not a ledger if entries are wanted.
        """
        if txn.store.next_id != self._next_id:
            self._listed = {listed.segment_id: listed for listed in self._all(txn)}
            self._next_id = txn.store.next_id
        else:
            self._look_again(txn, start)
        return tuple(self._listed.values())

    def _look_again(self, txn: ReadTransaction, start: StreamOffset) -> None:
        """Return the same segments as they are now, without those that are gone."""
        going = _Going(txn)
        for listed in list(unfinished(start, self._listed.values())):
            segment = directories.segment(txn, listed.segment_id)
            if segment is None or going.has(segment):
                del self._listed[listed.segment_id]
            else:
                self._listed[listed.segment_id] = self._describe(txn, listed.path, segment)

    @property
    def known(self) -> tuple[ListedSegment, ...]:
        """Return the segments as last seen."""
        return tuple(self._listed.values())

    def _all(self, txn: ReadTransaction) -> Iterator[ListedSegment]:
        """Return all segments; a path that is gone, or does not exist yet, has none."""
        seen = set[SegmentId]()
        for path in self._selection.paths:
            try:
                for name, segment in select(txn, replace(self._selection, paths=(path,))):
                    if segment.id not in seen:
                        seen.add(segment.id)
                        yield self._describe(txn, name, segment)
            except NotFound:
                continue

    def _describe(self, txn: ReadTransaction, name: str, segment: SegmentRecord) -> ListedSegment:
        start, length = segment.start_offset, segment.length
        end = min(chains.cold_end(txn, segment), segment.length) if self._cold_only else length
        if self._of_entries:
            if segment.kind is not SegmentKind.LEDGER:
                raise InvalidRequest(
                    f"segment {printable(name)} is not a ledger", remedy="read type lines or bytes, or other paths"
                )
            count = entries.count(txn, segment.id)
            end = count if end == length else entry_at(txn, segment.id, end)
            start, length = entry_at(txn, segment.id, start) if start else 0, count
        joins = tuple(join for join in segment.joins if join.is_of_several or self._selection.selects(join.name))
        return ListedSegment(
            segment.id,
            segment.birth,
            name,
            segment.sealed,
            start,
            end,
            length,
            joins,
            segment.unsealed_id,
            self._recoveries(txn, segment),
            *_sequence_of(segment),
            segment.began_ms,
            segment.modified_ms,
        )

    def _recoveries(self, txn: ReadTransaction, segment: SegmentRecord) -> tuple[int, ...]:
        known = segment.recoveries
        if not (known and self._of_entries):
            return known
        ends = (entry_at(txn, segment.id, end) if end else 0 for end in known[1::2])
        return tuple(value for pair in zip(known[::2], ends, strict=True) for value in pair)


def _sequence_of(segment: SegmentRecord) -> tuple[str, int]:
    """Return the name of a segment's sequence, and its place there."""
    if segment.kind is SegmentKind.BYTES:
        return f"{segment.parent_id}/{segment.stream}", segment.first_offset
    # A ledger of a managed one has its number as its name.
    number = units.decimal(segment.name)
    return ("", 0) if number is None else (f"{segment.parent_id}/", number)


def gone_elsewhere(txn: ReadTransaction, start: StreamOffset, listed: Sequence[ListedSegment]) -> Elsewhere:
    """Return what became of the open segments of an offset that are not listed, as far as the store knows.

    Looks at all segments, but only if an open one is gone.
    """
    there = {segment.birth for segment in listed} | {join.birth for segment in listed for join in segment.joins}
    gone = start.open.keys() - there
    if not gone:
        return {}
    places: dict[int, JoinedAway | MovedAway] = {}
    for _, segment in txn.scan(SEGMENTS):
        if segment.birth in gone:
            places.update(_moved(txn, segment))
        for join in segment.joins:
            if join.birth in gone and not join.is_of_several:
                places[join.birth] = _joined_away(txn, segment, join)
    return places


def _joined_away(txn: ReadTransaction, target: SegmentRecord, join: Join) -> JoinedAway:
    path = directories.path_of(txn, target.parent_id, target.name)
    return JoinedAway(join.name, path, join.source_end, join.recoveries)


def _moved(txn: ReadTransaction, segment: SegmentRecord) -> dict[int, MovedAway]:
    """Return where a segment is; nothing for one that is deleted for good."""
    path = directories.path_of(txn, segment.parent_id, segment.name)
    if not names.is_removed(path):
        return {segment.birth: MovedAway(path)}
    if not names.is_in_trash(path):
        return {}
    _, _, below = path.partition("/")
    removed = directories.top(txn, segment).removal.path
    return {segment.birth: MovedAway(f"{removed}/{below}" if below else removed, removed)}


class _Going:
    """Tells which segments were removed and await their deletion; each directory is looked up once."""

    def __init__(self, txn: ReadTransaction) -> None:
        self._txn = txn
        self._below: dict[DirectoryId, bool] = {}

    def has(self, segment: SegmentRecord) -> bool:
        """Return whether a segment is one."""
        parent_id = segment.parent_id
        if parent_id == ROOT_DIRECTORY:
            return directories.is_removed(parent_id, segment.name)
        if parent_id not in self._below:
            self._below[parent_id] = directories.is_going(self._txn, segment)
        return self._below[parent_id]
