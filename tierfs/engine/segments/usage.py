"""The bytes below a name in each tier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words import names
from tierfs.base.words.types import DirectoryId, EntryKind
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.stored_shares import StoredShares
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments.archived import ArchivedShares


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over one segment, or over all segments below a directory."""

    name: str
    kind: EntryKind
    bytes: int = 0
    """Readable bytes, each counted once however many tiers hold it."""
    local_bytes: int = 0
    cold_bytes: int = 0
    cold_stored_bytes: int = 0
    """Stored for the cold ones, by stored_shares.py."""
    archived_bytes: int = 0
    """Those of the cold ones in another storage class."""
    segments: int = 0

    def plus(self, other: Usage) -> Usage:
        """Return the sums with a child's added."""
        return replace(
            self,
            bytes=self.bytes + other.bytes,
            local_bytes=self.local_bytes + other.local_bytes,
            cold_bytes=self.cold_bytes + other.cold_bytes,
            cold_stored_bytes=self.cold_stored_bytes + other.cold_stored_bytes,
            archived_bytes=self.archived_bytes + other.archived_bytes,
            segments=self.segments + other.segments,
        )


@dataclass(frozen=True, slots=True)
class _Shares:
    """What is known of cold bytes beyond the records of segments."""

    stored: StoredShares
    archived: ArchivedShares


def usage(txn: ReadTransaction, path: str, report: OnProgress = unseen) -> Iterator[Usage]:
    """Yield the sums of every directory below `path`, children before parents and `path` itself last.

    Raises NotFound or NotDirectory.
    """
    entry = directories.must_find(txn, path)
    name = names.join(names.split(path))
    shares = _Shares(StoredShares(txn), ArchivedShares(txn))
    if entry.kind is EntryKind.SEGMENT:
        yield _of_segment(txn, entry, name, shares)
    else:
        yield from _of_directory(txn, entry, name, shares, Meter(report, noun="name"))


def _of_directory(txn: ReadTransaction, entry: Entry, name: str, shares: _Shares, meter: Meter) -> Iterator[Usage]:
    total = Usage(name, EntryKind.DIRECTORY)
    for child in meter.each(directories.entries(txn, DirectoryId(entry.id)), lambda child: f"{name}/{child.name}"):
        path = f"{name}/{child.name}" if name else child.name
        if child.kind is EntryKind.SEGMENT:
            total = total.plus(_of_segment(txn, child, path, shares))
            continue
        inner = Usage(path, EntryKind.DIRECTORY)
        for inner in _of_directory(txn, child, path, shares, meter):
            yield inner
        total = total.plus(inner)  # the last one is the child's own
    yield total


def _of_segment(txn: ReadTransaction, entry: Entry, name: str, shares: _Shares) -> Usage:
    record: SegmentRecord = txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(name)}")
    return Usage(
        name,
        entry.kind,
        record.range.length_bytes,
        record.local.bytes,
        record.cold.bytes,
        shares.stored.of(record).stored_bytes,
        shares.archived.bytes_of(record),
        1,
    )
