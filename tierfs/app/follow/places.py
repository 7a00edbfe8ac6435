"""The place of a log in a store, and the last bytes of its segment: for followers here, and those of other hosts."""

from __future__ import annotations

from tierfs.app.follow.target import LogPlace
from tierfs.app.store import Store
from tierfs.base.words import names
from tierfs.base.words.errors import IsDirectory
from tierfs.base.words.types import EntryKind, SegmentKind
from tierfs.engine.metadata import directories, followed
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.engine.segments import streams
from tierfs.reading.stream import copy_segment


def place_of(txn: ReadTransaction, segment: str) -> LogPlace:
    """Return what the store has of the log with this segment; of a new one nothing. Raises IsDirectory."""
    ranges = followed.of(txn, segment)
    entry = directories.find(txn, segment)
    if entry is None:
        return LogPlace(ranges)
    if entry.kind is EntryKind.DIRECTORY:
        raise IsDirectory(f"{names.printable(segment)} is a directory", remedy="follow with another --into")
    newest = streams.newest(txn, directories.segment_by_name(txn, segment))
    has_bytes = newest.kind is SegmentKind.BYTES
    return LogPlace(ranges, newest.length, newest.start_offset if has_bytes else newest.length)


def last_bytes(store: Store, segment: str, most_bytes: int) -> bytes:
    """Return the last bytes of a segment, as many as there are. Raises NotFound, and the errors of a read."""
    with store.metadata.read() as txn:
        newest = streams.newest(txn, directories.segment_by_name(txn, segment))
    start = max(newest.start_offset, newest.length - most_bytes)
    parts: list[bytes] = []
    copy_segment(store.reader(), newest, start, newest.length, None, lambda data: parts.append(bytes(data)))
    return b"".join(parts)
