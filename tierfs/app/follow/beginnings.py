"""The sources that a store follows, and the files with which each begins: recorded before anything is read."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace

from tierfs.app.follow import resume
from tierfs.app.follow.earlier_files import EarlierFiles
from tierfs.app.follow.files import OpenFile, Unreadable
from tierfs.app.follow.sources import Log, LogSource
from tierfs.app.follow.target import AppendTarget, LogPlace, TargetUnavailable, other_host
from tierfs.app.store import Store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.types import DirectoryId
from tierfs.engine.metadata import directories, followed
from tierfs.engine.metadata.followed_range import MAX_PROOF_BYTES, FollowedRange, FollowedSource
from tierfs.engine.segments import create


def record(
    store: Store,
    into: str,
    sources: Sequence[LogSource],
    first: Sequence[tuple[str, FollowedRange]],
    at_ms: int,
    sender: str = "",
) -> list[FollowedSource]:
    """Record that following sources begins with these files, by segment; make the directories. Return the records.

    A source that is recorded keeps its time. Raises Conflict for one that another host follows into the directory.
    """
    with store.metadata.write() as txn:
        for name in {into, *(segment.rpartition("/")[0] for segment, _ in first)}:
            create.make_directory(txn, name)
        directory_id = directories.must_find(txn, into).id
        rows = [record_of(source, directory_id, at_ms, sender) for source in sources]
        ours = {replace(row, begun_ms=0) for row in rows}
        for row in followed.sources(txn):
            if row.sender != sender and replace(row, begun_ms=0, background=False, sender=sender) in ours:
                raise other_host(f"{os.fsdecode(row.path)} into {into or '/'}", row.sender, sender)
        followed.begin(txn, rows, first)
    return recorded(store, into, sources, sender)


def first_ranges(target: AppendTarget, logs: Collection[Log]) -> list[tuple[str, FollowedRange]]:
    """Return the places from which logs without a record are read, by segment. Raises TargetUnavailable."""
    places = target.places([each.segment for each in logs])
    earlier = EarlierFiles()
    first: list[tuple[str, FollowedRange]] = []
    for each in logs:
        place = places[each.segment]
        if isinstance(place, TargetUnavailable):
            raise place
        if isinstance(place, LogPlace) and not place.ranges:
            row = continued(target, each, place, earlier) or _beginning(each.path)
            first += [] if row is None else [(each.segment, replace(row, sender=target.sender))]
    return first


def continued(target: AppendTarget, log: Log, place: LogPlace, earlier: EarlierFiles) -> FollowedRange | None:
    """Return the place in a log's files at which the bytes of its segment end; None without any, or if they differ."""
    if place.length <= place.start_offset:
        return None
    last = target.last_bytes(log.segment, resume.LAST_BYTES)
    return resume.find(last, place, log.path, earlier)


def recorded(store: Store, into: str, sources: Sequence[LogSource], sender: str = "") -> list[FollowedSource]:
    """Return the records of sources that are followed into a directory; of the others there are none."""
    with store.metadata.read() as txn:
        entry = directories.find(txn, into)
        wanted = set() if entry is None else {record_of(source, entry.id, sender=sender) for source in sources}
        return [row for row in followed.sources(txn) if replace(row, begun_ms=0, background=False) in wanted]


def record_of(source: LogSource, directory_id: int, begun_ms: int = 0, sender: str = "") -> FollowedSource:
    """Return the record of a source that is followed into a directory."""
    return FollowedSource(
        path=os.fsencode(source.path),
        below=source.below,
        directory_id=DirectoryId(directory_id),
        begun_ms=begun_ms,
        sender=sender,
    )


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
