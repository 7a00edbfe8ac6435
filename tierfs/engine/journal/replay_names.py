"""Replay of changes to the tree of names: entries, moves and the shape of the tree."""

from __future__ import annotations

from dataclasses import replace

from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind
from tierfs.engine.metadata import directories, tables, untrusted
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import DirectoryRecord, DirentRecord, SegmentRecord
from tierfs.engine.metadata.tables import DIRECTORIES, DIRENTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.metadata.untrusted import require

# Components of the longest name, each with its slash.
_MAX_DEPTH = names.MAX_NAME_BYTES // 2 + 1

# Paths of directories whose lengths are kept: some 5 MB.
_MOST_PATHS = 50_000


def place_segment(txn: WriteTransaction, old: SegmentRecord | None, new: SegmentRecord) -> None:
    """Give a segment its name; a moved one loses its old name. Raises DataLoss."""
    if old is not None and (old.parent_id, old.name, old.inode) == (new.parent_id, new.name, new.inode):
        return
    require(txn.get_raw(DIRECTORIES.name, tables.u64(new.id)) is None, "a segment has a directory's id", new.id)
    check_path(txn, new.parent_id, new.name)
    if old is not None:
        displace(txn, old.parent_id, old.name, EntryKind.SEGMENT, old.id)
    _enter(txn, new.parent_id, new.name, EntryKind.SEGMENT, new.id, new.created_ms)


def place_directory(
    txn: WriteTransaction, message: pb.DirectoryRecord, *, parent_may_follow: bool = False
) -> tuple[int, int]:
    """Write a directory and give it its name; return its id and inode. Raises DataLoss.

    `parent_may_follow`: a checkpoint is in the order of ids. `check_tree` then checks the paths that were not.
    A directory moves only when it is removed or restored: a longer path to it makes longer ones of all below it.
    """
    record = DIRECTORIES.codec.from_message(message)
    key = tables.u64(record.id)
    old = txn.get(DIRECTORIES, key)
    if record.id == ROOT_DIRECTORY:
        assert old is not None
        kept = replace(old, created_ms=record.created_ms, modified_ms=record.modified_ms, mode=record.mode)
        txn.put(DIRECTORIES, key, kept)
        txn.touch(inode=old.inode)
        return old.id, old.inode
    untrusted.check_directory(record)
    require(txn.get_raw(SEGMENTS.name, key) is None, "a directory has a segment's id", record.id)
    txn.put(DIRECTORIES, key, record)
    if old is None or (old.parent_id, old.name) != (record.parent_id, record.name):
        restored = old is not None and old.parent_id == ROOT_DIRECTORY and names.is_in_trash(old.name)
        if old is not None:
            moves = restored or directories.is_removed(record.parent_id, record.name)
            require(moves, "a directory moves", record.id)
            displace(txn, old.parent_id, old.name, EntryKind.DIRECTORY, old.id)
            txn.path_bytes.clear()
        _enter(txn, record.parent_id, record.name, EntryKind.DIRECTORY, record.id, record.created_ms)
        if not parent_may_follow or txn.get_raw(DIRECTORIES.name, tables.u64(record.parent_id)) is not None:
            check_path(txn, record.parent_id, record.name)
        if old is not None and restored:
            _check_restored(txn, old, record)
    txn.touch(inode=record.inode)
    return record.id, record.inode


def _check_restored(txn: WriteTransaction, old: DirectoryRecord, record: DirectoryRecord) -> None:
    """Raise DataLoss where a directory is restored to a path that makes a name below it too long."""
    path = directories.path_of(txn, record.parent_id, record.name)
    if len(path.encode()) > len(old.removal.path.encode()):  # what was not too long before is none after it, either
        entry = directories.Entry(record.name, EntryKind.DIRECTORY, record.id)
        try:
            directories.check_names(txn, entry, path)
        except InvalidRequest as exc:
            raise DataLoss(f"a directory is restored to a name that is too long: {exc}") from exc


def remove_directory(txn: WriteTransaction, directory_id: int) -> None:
    """Remove an empty directory; a missing one is success. Raises DataLoss for one with entries."""
    record = txn.get(DIRECTORIES, tables.u64(directory_id))
    if record is None:
        return
    require(record.id != ROOT_DIRECTORY, "it removes the root directory")
    require(directories.is_empty(txn, record.id), "it removes a directory that is not empty", record.id)
    txn.delete(DIRECTORIES.name, tables.u64(directory_id))
    txn.path_bytes.pop(directory_id, None)
    displace(txn, record.parent_id, record.name, EntryKind.DIRECTORY, record.id)
    txn.touch(inode=record.inode)


def displace(txn: WriteTransaction, parent_id: DirectoryId, name: str, kind: EntryKind, entry_id: int) -> None:
    """Remove the name of an entry, unless it stands for another one now."""
    entry = directories.lookup(txn, parent_id, name)
    if entry is not None and (entry.kind, entry.id) == (kind, entry_id):
        txn.delete(DIRENTS.name, tables.dirent(parent_id, name))
        _touch_parent(txn, parent_id, name, txn.now_ms)


def check_tree(txn: WriteTransaction) -> None:
    """Raise DataLoss unless every directory is below the root, by a name that is allowed."""
    txn.path_bytes.clear()
    for _, record in txn.scan(DIRECTORIES):
        if record.id != ROOT_DIRECTORY:
            check_path(txn, record.parent_id, record.name)


def check_path(txn: WriteTransaction, parent_id: DirectoryId, name: str) -> None:
    """Raise DataLoss unless the path up from an entry ends at the root and is not too long; its parts are checked."""
    _append(txn, parent_id, name, _bytes_of(txn, parent_id))


def _append(txn: WriteTransaction, parent_id: DirectoryId, name: str, parent_bytes: int) -> int:
    """Return the bytes of the path of an entry, given those of its directory's. Raises DataLoss."""
    if directories.is_removed(parent_id, name):
        return 0  # it may be longer than the name it replaced
    length_bytes = parent_bytes + bool(parent_bytes) + len(name.encode())
    require(length_bytes <= names.MAX_NAME_BYTES, "an impossible name: it is too long", length_bytes)
    return length_bytes


def _bytes_of(txn: WriteTransaction, directory_id: DirectoryId) -> int:
    """Return the bytes of a directory's path, which the transaction keeps: a path is climbed once, not once per entry
    below it. Raises DataLoss."""
    known, climbed = txn.path_bytes, list[DirectoryRecord]()
    at = directory_id
    while at != ROOT_DIRECTORY and at not in known:
        record = txn.get(DIRECTORIES, tables.u64(at))
        require(record is not None, "an unknown directory", at)
        assert record is not None
        climbed.append(record)
        require(len(climbed) <= _MAX_DEPTH, "directories are nested too deep or in a cycle", at)
        at = record.parent_id
    length_bytes = known.get(at, 0)
    if len(known) > _MOST_PATHS:
        known.clear()
    for record in reversed(climbed):
        length_bytes = known[record.id] = _append(txn, record.parent_id, record.name, length_bytes)
    return length_bytes


def _enter(
    txn: WriteTransaction, parent_id: DirectoryId, name: str, kind: EntryKind, entry_id: int, created_ms: int
) -> None:
    entry = directories.lookup(txn, parent_id, name)
    if entry is not None and (entry.kind, entry.id) != (kind, entry_id):
        require(False, f"two entries have one name: {names.printable(name)}", entry.id, entry_id)
    txn.put(DIRENTS, tables.dirent(parent_id, name), DirentRecord(kind=kind, id=entry_id))
    _touch_parent(txn, parent_id, name, created_ms)


def _touch_parent(txn: WriteTransaction, parent_id: DirectoryId, name: str, now_ms: int) -> None:
    parent = txn.message(DIRECTORIES, tables.u64(parent_id))
    if parent is None:
        return  # follows later in a checkpoint
    if now_ms > parent.modified_ms:
        parent.modified_ms = now_ms
        txn.put_raw(DIRECTORIES.name, tables.u64(parent_id), parent.SerializeToString(deterministic=True))
    txn.touch(parent_inode=parent.inode, name=name)
