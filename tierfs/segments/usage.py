"""How many bytes are below a name, and in which tier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tierfs import names
from tierfs.metadata import directories, keys
from tierfs.metadata.directories import Entry
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import DirectoryId, EntryKind


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over one segment, or over all segments below a directory."""

    name: str
    kind: EntryKind
    bytes: int = 0
    """What can be read, however many tiers hold it."""
    local_bytes: int = 0
    cold_bytes: int = 0
    segments: int = 0

    def plus(self, other: Usage) -> Usage:
        """With what is in a child."""
        return replace(
            self,
            bytes=self.bytes + other.bytes,
            local_bytes=self.local_bytes + other.local_bytes,
            cold_bytes=self.cold_bytes + other.cold_bytes,
            segments=self.segments + other.segments,
        )


def usage(txn: ReadTransaction, path: str) -> Iterator[Usage]:
    """The sums of every directory below `path`, children before parents and `path` itself last.

    Raises NotFound or NotDirectory.
    """
    entry = directories.must_find(txn, path)
    name = names.join(names.split(path))
    if entry.kind is EntryKind.SEGMENT:
        yield _of_segment(txn, entry, name)
    else:
        yield from _of_directory(txn, entry, name)


def _of_directory(txn: ReadTransaction, entry: Entry, name: str) -> Iterator[Usage]:
    total = Usage(name, EntryKind.DIRECTORY)
    for child in directories.entries(txn, DirectoryId(entry.id)):
        path = f"{name}/{child.name}" if name else child.name
        if child.kind is EntryKind.SEGMENT:
            total = total.plus(_of_segment(txn, child, path))
            continue
        inner = Usage(path, EntryKind.DIRECTORY)
        for inner in _of_directory(txn, child, path):
            yield inner
        total = total.plus(inner)  # the last one is the child's own
    yield total


def _of_segment(txn: ReadTransaction, entry: Entry, name: str) -> Usage:
    record: SegmentRecord = txn.must_get(SEGMENTS, keys.u64(entry.id), f"segment {names.printable(name)}")
    return Usage(name, entry.kind, record.range.length_bytes, record.local.bytes, record.cold.bytes, 1)
