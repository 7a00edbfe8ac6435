"""The sources that a store follows, and the files with which each begins: recorded before anything is read."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace

from tierfs.app.follow.earlier_files import EarlierFiles
from tierfs.app.follow.files import OpenFile, Unreadable
from tierfs.app.follow.sources import Log, LogSource
from tierfs.app.store import Store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.types import DirectoryId, EntryKind, SegmentKind
from tierfs.engine.metadata import directories, followed
from tierfs.engine.metadata.followed_range import MAX_PROOF_BYTES, FollowedRange, FollowedSource
from tierfs.engine.segments import create, streams


def record(store: Store, into: str, sources: Sequence[LogSource], logs: Collection[Log], at_ms: int) -> None:
    """Record that following sources begins with these logs, which were listed after `at_ms`; make the directories."""
    earlier = EarlierFiles()
    first = [(each.segment, row) for each in logs if (row := _first(store, each, earlier)) is not None]
    with store.metadata.write() as txn:
        for name in {into, *(segment.rpartition("/")[0] for segment, _ in first)}:
            create.make_directory(txn, name)
        directory_id = directories.must_find(txn, into).id
        followed.begin(txn, [record_of(source, directory_id, at_ms) for source in sources], first)


def _first(store: Store, log: Log, earlier: EarlierFiles) -> FollowedRange | None:
    """Return the place from which a log is read: its start, or the end of the bytes that its segment already has."""
    with store.metadata.read() as txn:
        if followed.of(txn, log.segment):
            return None
        entry = directories.find(txn, log.segment)
        is_segment = entry is not None and entry.kind is EntryKind.SEGMENT
        segment = streams.newest(txn, directories.segment_by_name(txn, log.segment)) if is_segment else None
    if segment is not None and segment.kind is SegmentKind.BYTES and segment.length > segment.start_offset:
        from tierfs.app.follow import resume

        if (place := resume.find(store, segment, log.path, earlier)) is not None:
            return place
    return _beginning(log.path)


def recorded(store: Store, into: str, sources: Sequence[LogSource]) -> list[FollowedSource]:
    """Return the records of sources that are followed into a directory; of the others there are none."""
    with store.metadata.read() as txn:
        entry = directories.find(txn, into)
        wanted = set() if entry is None else {record_of(source, entry.id) for source in sources}
        return [row for row in followed.sources(txn) if replace(row, begun_ms=0, background=False) in wanted]


def record_of(source: LogSource, directory_id: int, begun_ms: int = 0) -> FollowedSource:
    """Return the record of a source that is followed into a directory."""
    path = os.fsencode(source.path)
    return FollowedSource(path=path, below=source.below, directory_id=DirectoryId(directory_id), begun_ms=begun_ms)


def _beginning(path: str) -> FollowedRange | None:
    """Return the record of a file that is to be read from its start; None where there is none that can be read."""
    try:
        file = OpenFile(path)
    except (OSError, Unreadable):
        return None
    try:
        look, head = file.look(), file.read(0, MAX_PROOF_BYTES)
    except OSError:
        return None
    finally:
        file.close()
    return FollowedRange(
        path=os.fsencode(path),
        device=look.device,
        inode=look.inode,
        head_length=len(head),
        head_crc32c=crc32c(head),
        modified_ns=look.modified_ns,
    )
