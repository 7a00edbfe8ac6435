"""The tree of names: lookups, listings by cursor, changes and moves of entries, and the queue of removed entries.

A removed entry that still has to be deleted waits in the root as `.tierfs-removed-<id>`, and one in the trash as
`.tierfs-trash-<time>-<id>`. No listing shows these names, no path finds them and no request can create them: a durable
queue without a database of its own. The journal records an ordinary move, so both survive a recovery too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, DataLoss, IsDirectory, NotDirectory, NotFound
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind, Inode, SegmentId, SegmentStatus
from tierfs.engine.metadata import changes, tables
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.record_parts import NOT_REMOVED, Removal
from tierfs.engine.metadata.records import DirectoryRecord, DirentRecord, SegmentRecord
from tierfs.engine.metadata.tables import DIRECTORIES, DIRENTS, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# A segment's full name and its id.
Named = tuple[str, SegmentId]

# Segments listed in one transaction: some milliseconds, and 200 KiB.
PAGE_SEGMENTS = 1000

_KINDS = {int(kind): kind for kind in EntryKind}


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory."""

    name: str
    kind: EntryKind
    id: int


def _entry(name: str, row: pb.DirentRecord) -> Entry:
    kind = _KINDS.get(row.kind)
    if kind is None:
        raise DataLoss(f"the entry {names.printable(name)} is of an unknown kind", remedy="run: tierfs check")
    return Entry(name, kind, row.id)


def lookup(txn: ReadTransaction, parent_id: DirectoryId, name: str) -> Entry | None:
    """Return the entry `name` of a directory, a removed one too: one LMDB get."""
    row = txn.message(DIRENTS, tables.dirent(parent_id, name))
    return None if row is None else _entry(name, row)


def entries(txn: ReadTransaction, parent_id: DirectoryId, *, after: str = "") -> Generator[Entry]:
    """Yield entries of a directory after name `after`, in byte order of their names; streams off one cursor.

    Removed entries are skipped, all of one kind with one seek.
    """
    start: bytes | None = tables.dirent(parent_id, after) + b"\0" if after else tables.u64(parent_id)
    message_in = DIRENTS.codec.message
    while start is not None:
        rows, start = txn.scan_raw(DIRENTS.name, start, prefix=tables.u64(parent_id)), None
        for key, data in rows:
            name = tables.dirent_name(key)
            if is_removed(parent_id, name):
                start = tables.dirent(parent_id, names.after_hidden(name))
                break
            row = message_in(data)
            yield _entry(name, row)


def check_names(txn: ReadTransaction, entry: Entry, path: str) -> None:
    """Raise InvalidRequest if an entry that moved to `path`, or any below it, would have a name that is too long."""
    names.split(path)
    if entry.kind is EntryKind.DIRECTORY:
        for child in entries(txn, DirectoryId(entry.id)):
            check_names(txn, child, f"{path}/{child.name}")


def is_removed(parent_id: int, name: str) -> bool:
    """Return whether a name stands for a removed entry, in the trash or not."""
    return parent_id == ROOT_DIRECTORY and names.is_removed(name)


def is_going(txn: ReadTransaction, segment: SegmentRecord) -> bool:
    """Return whether a segment is, or is below, a removed entry, in the trash or not."""
    return names.is_removed(top(txn, segment).name)


def top(txn: ReadTransaction, entry: SegmentRecord | DirectoryRecord) -> SegmentRecord | DirectoryRecord:
    """Return the entry of the root that a segment or directory is, or is below."""
    above = entry
    while above.parent_id != ROOT_DIRECTORY:
        above = directory(txn, above.parent_id)
    return above


def find(txn: ReadTransaction, name: str) -> Entry | None:
    """Return the entry at a path; the empty path is the root. Raises NotDirectory below a segment."""
    entry = Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY)
    for part in names.split(name):
        if entry.kind is not EntryKind.DIRECTORY:
            raise NotDirectory(f"{names.printable(name)}: {names.printable(entry.name)} is a segment, not a directory")
        child = lookup(txn, DirectoryId(entry.id), part)
        if child is None or is_removed(entry.id, part):
            return None
        entry = child
    return entry


def inode_of(txn: ReadTransaction, entry: Entry) -> int:
    """Return the inode that mounts show for an entry. Raises NotFound."""
    if entry.kind is EntryKind.DIRECTORY:
        return directory(txn, entry.id).inode
    return segment_by_id(txn, SegmentId(entry.id)).inode


def exists(txn: ReadTransaction, name: str) -> bool:
    """Return whether a path names something; nothing is below a segment."""
    try:
        return find(txn, name) is not None
    except NotDirectory:
        return False


def must_find(txn: ReadTransaction, path: str, kind: str = "") -> Entry:
    """Return the entry at a path; raises NotFound, which calls it a `kind`, or NotDirectory."""
    entry = find(txn, path)
    if entry is None:
        raise NotFound(f"{f'{kind} ' if kind else ''}{names.printable(path)} does not exist")
    return entry


def directory(txn: ReadTransaction, directory_id: int) -> DirectoryRecord:
    """Return the directory with this id; raises NotFound."""
    return txn.must_get(DIRECTORIES, tables.u64(directory_id), f"directory {directory_id}")


def segment_by_name(txn: ReadTransaction, name: str) -> SegmentRecord:
    """Return the segment at a path; raises NotFound, or IsDirectory."""
    entry = must_find(txn, name, "segment")
    if entry.kind is EntryKind.DIRECTORY:
        raise not_a_segment(name)
    return txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(name)}")


def not_a_segment(name: str) -> IsDirectory:
    """Return the error of a directory, or of a managed ledger, where a segment is meant."""
    remedy = f"choose a segment in it: tierfs ls {names.as_word(name or '/')}"
    return IsDirectory(f"{names.printable(name) or '/'} is a directory, not a segment", remedy=remedy)


def matching(txn: ReadTransaction, pattern: str) -> list[tuple[str, Entry]]:
    """Return full names and entries that match a pattern, of which each component is one of `fnmatch`, in byte order.

    As in a shell, a leading dot is matched by a dot alone.
    """
    level = [("", Entry("", EntryKind.DIRECTORY, ROOT_DIRECTORY))]
    for part in names.split(pattern):
        level = [
            (f"{path}/{child.name}" if path else child.name, child)
            for path, above in level
            if above.kind is EntryKind.DIRECTORY
            for child in _matching(txn, DirectoryId(above.id), part)
        ]
    return level


def _matching(txn: ReadTransaction, parent_id: DirectoryId, part: str) -> Iterator[Entry]:
    if not names.is_pattern(part):
        child = lookup(txn, parent_id, part)
        yield from () if child is None or is_removed(parent_id, part) else (child,)
        return
    for child in entries(txn, parent_id):
        if fnmatchcase(child.name, part) and (part[0] == "." or child.name[0] != "."):
            yield child


def path_of(txn: ReadTransaction, parent_id: DirectoryId, name: str) -> str:
    """Return the full name of `name` in directory `parent_id`."""
    parts = [name]
    while parent_id != ROOT_DIRECTORY:
        record = directory(txn, parent_id)
        parts.append(record.name)
        parent_id = record.parent_id
    return names.join(tuple(reversed(parts)))


def full_name(txn: ReadTransaction, segment: SegmentRecord) -> str:
    """Return the full name of a segment, for people."""
    return names.printable(path_of(txn, segment.parent_id, segment.name))


def segments_at(txn: ReadTransaction, path: str) -> Iterator[tuple[str, SegmentRecord]]:
    """Yield full names and records of the segment at a path, or of those below it. Raises what must_find raises."""
    return segments_below(txn, must_find(txn, path), names.join(names.split(path)))


def segments_below(txn: ReadTransaction, entry: Entry, path: str) -> Iterator[tuple[str, SegmentRecord]]:
    """Yield full names and records of a segment, or of all segments under a directory, depth first."""
    if entry.kind is EntryKind.SEGMENT:
        yield path, txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(path)}")
        return
    for child in entries(txn, DirectoryId(entry.id)):
        yield from segments_below(txn, child, f"{path}/{child.name}" if path else child.name)


def pages(
    begin: Callable[[], AbstractContextManager[ReadTransaction]], path: str, most: int | None = None
) -> Iterator[list[Named]]:
    """Yield the segments at or below a path in pages, as pages_below. Raises what must_find raises."""
    with begin() as txn:
        entry = must_find(txn, path)
    return pages_below(begin, entry, names.join(names.split(path)), most)


def pages_below(
    begin: Callable[[], AbstractContextManager[ReadTransaction]], entry: Entry, path: str, most: int | None = None
) -> Iterator[list[Named]]:
    """Yield full names and ids of a segment, or of the segments under a directory, in the order of segments_below.

    At most `most` at a time (PAGE_SEGMENTS), each page in a transaction of its own: any number of segments takes the
    memory of one page, and keeps no old page of the database. What appears meanwhile is listed or not. What was there
    before the first page and is after the last one is listed, unless it was renamed meanwhile.
    """
    most = PAGE_SEGMENTS if most is None else most
    after: tuple[str, ...] = ()
    depth = path.count("/") + 1 if path else 0
    while True:
        with begin() as txn:
            page = list(islice(_named_below(txn, entry, path, after), most))
        yield page
        if len(page) < most or entry.kind is EntryKind.SEGMENT:
            return
        after = tuple(page[-1][0].split("/"))[depth:]


def _named_below(txn: ReadTransaction, entry: Entry, path: str, after: tuple[str, ...]) -> Iterator[Named]:
    """Yield what lies behind the relative name `after`; its rows of segments are not read."""
    if entry.kind is EntryKind.SEGMENT:
        if not after:
            yield path, SegmentId(entry.id)
        return
    prefix = f"{path}/" if path else ""
    first, *rest = after or ("",)
    inside = lookup(txn, DirectoryId(entry.id), first) if rest else None
    if inside is not None and inside.kind is EntryKind.DIRECTORY:
        yield from _named_below(txn, inside, f"{prefix}{first}", tuple(rest))
    for child in entries(txn, DirectoryId(entry.id), after=first):
        if child.kind is EntryKind.SEGMENT:
            yield f"{prefix}{child.name}", SegmentId(child.id)
        else:
            yield from _named_below(txn, child, f"{prefix}{child.name}", ())


def make_directories(txn: WriteTransaction, parts: tuple[str, ...]) -> DirectoryId:
    """Make and journal the directories of a path that are missing; return the last one's id. Raises NotDirectory."""
    parent_id = ROOT_DIRECTORY
    for depth, part in enumerate(parts):
        entry = lookup(txn, parent_id, part)
        if entry is not None and entry.kind is EntryKind.SEGMENT:
            path = names.join(parts[: depth + 1])
            raise NotDirectory(f"{names.printable(path)} is a segment, so nothing can be created below it")
        parent_id = _make_directory(txn, parent_id, part) if entry is None else DirectoryId(entry.id)
    return parent_id


def _make_directory(txn: WriteTransaction, parent_id: DirectoryId, name: str) -> DirectoryId:
    record = DirectoryRecord(
        id=DirectoryId(txn.allocate_id()),
        parent_id=parent_id,
        name=name,
        inode=Inode(txn.allocate_id()),
        created_ms=txn.now_ms,
        modified_ms=txn.now_ms,
    )
    changes.put(txn, DIRECTORIES, record)
    add_entry(txn, parent_id, Entry(name, EntryKind.DIRECTORY, record.id))
    return record.id


def add_entry(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry) -> None:
    """Add a name to a directory; raises AlreadyExists."""
    put_entry(txn, parent_id, entry)
    _entry_changed(txn, parent_id, entry.name)


def put_entry(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry) -> None:
    """Add one of many names; the caller notifies mounts of each, and calls `modify` once. Raises AlreadyExists."""
    key = tables.dirent(parent_id, entry.name)
    if txn.get_raw(DIRENTS.name, key) is not None:
        raise AlreadyExists(f"{names.printable(entry.name)} already exists")
    txn.put(DIRENTS, key, DirentRecord(kind=entry.kind, id=entry.id))


def remove_entry(txn: WriteTransaction, parent_id: DirectoryId, name: str) -> None:
    """Remove a name from a directory; a missing one is success."""
    if txn.delete(DIRENTS.name, tables.dirent(parent_id, name)):
        _entry_changed(txn, parent_id, name)


def renew_inode(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """Give the name a new inode, as after log rotation; open handles keep the old file.

    Returns the changed segment, not yet written.
    """
    _entry_changed(txn, segment.parent_id, segment.name)
    txn.touch(inode=segment.inode, segment_id=segment.id)
    return replace(segment, inode=Inode(txn.allocate_id()))


def is_empty(txn: ReadTransaction, directory_id: DirectoryId) -> bool:
    """Return whether the directory has no entries."""
    return next(entries(txn, directory_id), None) is None


def modify(txn: WriteTransaction, parent: DirectoryRecord) -> None:
    """Set the modification time of a directory of which names changed in this transaction."""
    txn.put(DIRECTORIES, tables.u64(parent.id), replace(parent, modified_ms=txn.now_ms))


def _entry_changed(txn: WriteTransaction, parent_id: DirectoryId, name: str) -> None:
    parent = directory(txn, parent_id)
    modify(txn, parent)
    txn.touch(parent_inode=parent.inode, name=name)


def segment_by_id(txn: ReadTransaction, segment_id: SegmentId) -> SegmentRecord:
    """Return the segment with this id; raises NotFound."""
    return txn.must_get(SEGMENTS, tables.u64(segment_id), f"segment {segment_id}")


def segment(txn: ReadTransaction, segment_id: SegmentId) -> SegmentRecord | None:
    """Return the segment with this id, or None."""
    return txn.get(SEGMENTS, tables.u64(segment_id))


def living_segment(txn: ReadTransaction, segment_id: SegmentId) -> SegmentRecord | None:
    """Return the segment with this id; None also if it was removed and is in the trash, or not deleted yet."""
    record = segment(txn, segment_id)
    gone = record is None or record.status is SegmentStatus.DELETED or is_going(txn, record)
    return None if gone else record


def move(
    txn: WriteTransaction,
    parent_id: DirectoryId,
    entry: Entry,
    to_parent_id: DirectoryId,
    to_name: str,
    removal: Removal = NOT_REMOVED,
) -> SegmentRecord | DirectoryRecord:
    """Give an entry another name, with all that is below it, and journal it. Raises AlreadyExists.

    `removal` describes it in the trash, and only there.
    """
    if is_removed(parent_id, entry.name):
        txn.delete(DIRENTS.name, tables.dirent(parent_id, entry.name))
    else:
        remove_entry(txn, parent_id, entry.name)
    named = Entry(to_name, entry.kind, entry.id)
    put_entry(txn, to_parent_id, named)
    if is_removed(to_parent_id, to_name):
        txn.update_store(removals=txn.store.removals + 1)
    else:
        _entry_changed(txn, to_parent_id, to_name)
    if entry.kind is EntryKind.DIRECTORY:
        moved = replace(directory(txn, entry.id), parent_id=to_parent_id, name=to_name, removal=removal)
        changes.put(txn, DIRECTORIES, moved)
        txn.touch(inode=moved.inode)
        return moved
    record: SegmentRecord = txn.must_get(SEGMENTS, tables.u64(entry.id), f"segment {names.printable(entry.name)}")
    return changes.rewrite(txn, replace(record, parent_id=to_parent_id, name=to_name, removal=removal))


def queue(txn: WriteTransaction, parent_id: DirectoryId, entry: Entry) -> None:
    """Remove an entry's name and queue the entry for deletion, with everything below it."""
    hidden = f"{names.REMOVED_PREFIX}{entry.id}"
    moved = move(txn, parent_id, entry, ROOT_DIRECTORY, hidden)
    if isinstance(moved, SegmentRecord):
        bury(txn, moved)


def bury(txn: WriteTransaction, segment: SegmentRecord) -> SegmentRecord:
    """End a segment that is deleted in several steps: no byte of it is read or appended any more."""
    buried = replace(
        segment,
        status=SegmentStatus.DELETED,
        start_offset=segment.length,
        writer_epoch=segment.writer_epoch + 1,
        active=False,
        resumable=False,
    )
    return changes.rewrite(txn, buried)


def in_trash(txn: ReadTransaction) -> Iterator[Entry]:
    """Yield the entries of the trash, in the order in which they fall due."""
    for key, record in txn.scan(DIRENTS, prefix=tables.dirent(ROOT_DIRECTORY, names.TRASH_PREFIX)):
        yield Entry(tables.dirent_name(key), record.kind, record.id)


def next_due_ms(txn: ReadTransaction) -> int:
    """Return when the time of the next entry in the trash ends; 0 for an empty trash."""
    first = next(in_trash(txn), None)
    return 0 if first is None else names.trash_due_ms(first.name)


def next_queued(txn: ReadTransaction) -> Entry | None:
    """Return an entry that is queued; None when there is none."""
    prefix = tables.dirent(ROOT_DIRECTORY, names.REMOVED_PREFIX)
    for key, record in txn.scan(DIRENTS, prefix=prefix):
        return Entry(tables.dirent_name(key), record.kind, record.id)
    return None
