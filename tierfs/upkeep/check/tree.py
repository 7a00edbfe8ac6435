"""Checks the tree of names: names lead to records, and records to their names."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import ROOT_DIRECTORY, EntryKind
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.message_rows import message, messages
from tierfs.engine.metadata.tables import DIRECTORIES, DIRENTS, SEGMENTS, Table
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.upkeep.check.findings import RECOVER, Finding, FindingPlace, Kind, Mend, Severity

_TABLES: dict[EntryKind, Table[Any]] = {EntryKind.DIRECTORY: DIRECTORIES, EntryKind.SEGMENT: SEGMENTS}
# Inodes are sorted in so many parts, as Python's objects of all numbers would take 40 bytes each.
_PARTS = 64
# A component has at least one byte.
_MAX_DEPTH = names.MAX_NAME_BYTES


def check_dirents(txn: ReadTransaction) -> Iterator[Finding]:
    """Check that every name leads to a record of the same name."""
    for key, dirent in messages(txn, DIRENTS):
        yield from check_dirent(txn, key, dirent)


def check_dirent(txn: ReadTransaction, key: bytes, dirent: Any | None) -> Iterator[Finding]:
    """Check one name."""
    if dirent is None or dirent.kind not in _TABLES:
        yield damaged(DIRENTS.name, key, f"name {_name(key)} in directory {tables.read_u64(key)}")
        return
    record = message(txn, _TABLES[dirent.kind], tables.u64(dirent.id))
    if (
        record is not None
        and record.parent_id == tables.read_u64(key)
        and record.name.encode() == key[tables.U64_BYTES :]
    ):
        yield from _check_removal(record)
        return
    subject = f"name {_name(key)} in directory {tables.read_u64(key)}"
    if record is None:
        yield _dangling(txn, key, dirent, subject)
    else:
        yield _wrong(txn, key, dirent, record, subject)


def _check_removal(record: Any) -> Iterator[Finding]:
    """Check that exactly what has a name in the trash says when it is due there."""
    hidden = record.parent_id == ROOT_DIRECTORY and names.is_in_trash(record.name)
    due_ms = record.removal.due_ms
    if (hidden or due_ms) and not (hidden and record.name == names.in_trash(due_ms, record.id)):
        what = f"its record says that it is in the trash until {due_ms} ms, which is not in its name"
        yield Finding(Kind.RECORD, Severity.DAMAGE, f"name {names.printable(record.name)}", what, remedy=RECOVER)


def check_directories(txn: ReadTransaction, inodes: array[int]) -> Iterator[Finding]:
    """Check that every directory has its name and leads to the root; append their inodes to `inodes`."""
    rooted = {int(ROOT_DIRECTORY)}
    seen_root = False
    for key, record in messages(txn, DIRECTORIES):
        number = tables.read_u64(key)
        if record is None or record.id != number:
            yield damaged(DIRECTORIES.name, key, f"directory {number}")
            continue
        inodes.append(record.inode)
        if number == ROOT_DIRECTORY:
            seen_root = True
            continue
        yield from named(txn, record, EntryKind.DIRECTORY)
        yield from _way_up(txn, record, rooted)
    if not seen_root:
        yield damaged(DIRECTORIES.name, tables.u64(ROOT_DIRECTORY), "the root directory")


def named(txn: ReadTransaction, record: Any, kind: EntryKind) -> Iterator[Finding]:
    """Check that the directory named by a record has it under the same name."""
    dirent = message(txn, DIRENTS, tables.dirent(record.parent_id, record.name))
    if dirent is not None and (dirent.kind, dirent.id) == (kind, record.id):
        return
    what = kind.name.lower()
    parent = message(txn, DIRECTORIES, tables.u64(record.parent_id))
    taken = dirent is not None
    mendable = parent is not None and not taken and _allowed(record.name)
    why = "that name refers to another record" if taken else "its directory does not list it"
    yield Finding(
        Kind.DIRENT_MISSING,
        Severity.DAMAGE,
        f"{what} {record.id}",
        f"it is {names.printable(record.name)} in directory {record.parent_id}, but {why}",
        mend=Mend.ADD_DIRENT if mendable else None,
        remedy=None if mendable else RECOVER,
        row=(_TABLES[kind].name, tables.u64(record.id)),
        place=FindingPlace(record.id) if kind is EntryKind.SEGMENT else None,
    )


def twice(inodes: array[int]) -> Iterator[Finding]:
    """Yield inodes shared by two entries."""
    parts = [array("Q") for _ in range(_PARTS)]
    for inode in inodes:
        parts[inode % _PARTS].append(inode)
    for part in parts:
        for inode, other in pairwise(sorted(part)):
            if inode == other:
                yield Finding(Kind.INODE, Severity.DAMAGE, f"inode {inode}", "two entries share it", remedy=RECOVER)


def damaged(database: bytes, key: bytes, subject: str) -> Finding:
    """Return the finding for a record that cannot be parsed or does not match its key."""
    return Finding(
        Kind.RECORD, Severity.DAMAGE, subject, "its record is damaged or missing", remedy=RECOVER, row=(database, key)
    )


def _way_up(txn: ReadTransaction, record: Any, rooted: set[int]) -> Iterator[Finding]:
    """Check that the parents lead to the root."""
    way: list[int] = [record.id]
    at = record.parent_id
    while at not in rooted:
        if at in way or len(way) > _MAX_DEPTH:
            yield Finding(
                Kind.DIRECTORY_CYCLE,
                Severity.DAMAGE,
                f"directory {record.id}",
                "its parents form a cycle",
                remedy=RECOVER,
            )
            return
        parent = message(txn, DIRECTORIES, tables.u64(at))
        if parent is None:
            yield Finding(
                Kind.DIRECTORY_PARENT,
                Severity.DAMAGE,
                f"directory {record.id}",
                f"it is in directory {at}, which does not exist",
                remedy=RECOVER,
            )
            return
        way.append(at)
        at = parent.parent_id
    rooted.update(way)


def _dangling(txn: ReadTransaction, key: bytes, dirent: Any, subject: str) -> Finding:
    """Return the finding for a name without a record; it may be dropped only if no trace of the entry is left."""
    kind = EntryKind(dirent.kind)
    below = DIRENTS.name if kind is EntryKind.DIRECTORY else b"chunks"
    row = txn.get_raw(_TABLES[kind].name, tables.u64(dirent.id))
    has_traces = row is not None or next(txn.scan_raw(below, prefix=tables.u64(dirent.id)), None) is not None
    return Finding(
        Kind.DIRENT_DANGLING,
        Severity.DAMAGE,
        subject,
        f"it refers to {kind.name.lower()} {dirent.id}, whose record is {'damaged or ' if has_traces else ''}missing",
        mend=None if has_traces else Mend.DROP_ROW,
        remedy=RECOVER if has_traces else None,
        row=(DIRENTS.name, key),
    )


def _wrong(txn: ReadTransaction, key: bytes, dirent: Any, record: Any, subject: str) -> Finding:
    """Return the finding for a second name; it is certainly wrong only if the record's own name leads there too."""
    own = message(txn, DIRENTS, tables.dirent(record.parent_id, record.name))
    second = own is not None and (own.kind, own.id) == (dirent.kind, dirent.id)
    return Finding(
        Kind.DIRENT_WRONG,
        Severity.DAMAGE,
        subject,
        f"its record says that it is {names.printable(record.name)} in directory {record.parent_id}",
        mend=Mend.DROP_ROW if second else None,
        remedy=None if second else RECOVER,
        row=(DIRENTS.name, key),
    )


def _name(key: bytes) -> str:
    return names.printable(key[tables.U64_BYTES :].decode(errors="replace"))


def _allowed(name: str) -> bool:
    try:
        names.check_component(name)
    except InvalidRequest:
        return False
    return True
