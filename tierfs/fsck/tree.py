"""The tree of names: names lead to records, and records to their names."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tierfs import names
from tierfs.errors import InvalidRequest
from tierfs.fsck.findings import RECOVER, Finding, FindingPlace, Kind, Mend, Severity
from tierfs.metadata import tables
from tierfs.metadata.tables import DIRECTORIES, DIRENTS, SEGMENTS, Table
from tierfs.metadata.transaction import ReadTransaction
from tierfs.metadata.untrusted import message, messages
from tierfs.types import ROOT_DIRECTORY, EntryKind

_TABLES: dict[EntryKind, Table[Any]] = {EntryKind.DIRECTORY: DIRECTORIES, EntryKind.SEGMENT: SEGMENTS}
_MAX_DEPTH = names.MAX_NAME_BYTES
"""A component has at least one byte."""


def check_dirents(txn: ReadTransaction) -> Iterator[Finding]:
    """Every name leads to a record that says the same name."""
    for key, dirent in messages(txn, DIRENTS):
        yield from check_dirent(txn, key, dirent)


def check_dirent(txn: ReadTransaction, key: bytes, dirent: Any | None) -> Iterator[Finding]:
    """One name."""
    if dirent is None or dirent.kind not in _TABLES:
        yield damaged(DIRENTS.name, key, f"name {_name(key)} in directory {tables.read_u64(key)}")
        return
    found = message(txn, _TABLES[dirent.kind], tables.u64(dirent.id))
    if found is not None and found.parent_id == tables.read_u64(key) and found.name.encode() == key[tables.U64_BYTES :]:
        return
    subject = f"name {_name(key)} in directory {tables.read_u64(key)}"
    if found is None:
        yield _dangling(txn, key, dirent, subject)
    else:
        yield _wrong(txn, key, dirent, found, subject)


def check_directories(txn: ReadTransaction, inodes: array[int]) -> Iterator[Finding]:
    """Every directory has its name and leads to the root. Adds their inodes."""
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
    """Whether the directory that a record names knows it by the same name."""
    dirent = message(txn, DIRENTS, tables.dirent(record.parent_id, record.name))
    if dirent is not None and (dirent.kind, dirent.id) == (kind, record.id):
        return
    what = kind.name.lower()
    parent = message(txn, DIRECTORIES, tables.u64(record.parent_id))
    taken = dirent is not None
    mendable = parent is not None and not taken and _allowed(record.name)
    why = "that name leads elsewhere" if taken else "its directory does not know it"
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
    """Inodes that two entries share."""
    for one, other in pairwise(sorted(inodes)):
        if one == other:
            yield Finding(Kind.INODE, Severity.DAMAGE, f"inode {one}", "two entries share it", remedy=RECOVER)


def damaged(database: bytes, key: bytes, subject: str) -> Finding:
    """A record that cannot be parsed, or is not that of its key."""
    return Finding(
        Kind.RECORD, Severity.DAMAGE, subject, "its record is damaged or missing", remedy=RECOVER, row=(database, key)
    )


def _way_up(txn: ReadTransaction, record: Any, rooted: set[int]) -> Iterator[Finding]:
    """Whether the parents lead to the root."""
    way: list[int] = [record.id]
    at = record.parent_id
    while at not in rooted:
        if at in way or len(way) > _MAX_DEPTH:
            yield Finding(
                Kind.DIRECTORY_CYCLE,
                Severity.DAMAGE,
                f"directory {record.id}",
                "its parents lead in a circle",
                remedy=RECOVER,
            )
            return
        parent = message(txn, DIRECTORIES, tables.u64(at))
        if parent is None:
            yield Finding(
                Kind.DIRECTORY_PARENT,
                Severity.DAMAGE,
                f"directory {record.id}",
                f"it lies in directory {at}, which is not there",
                remedy=RECOVER,
            )
            return
        way.append(at)
        at = parent.parent_id
    rooted.update(way)


def _dangling(txn: ReadTransaction, key: bytes, dirent: Any, subject: str) -> Finding:
    """A name without its record. Only if nothing below or of it is left, dropping it loses nothing."""
    kind = EntryKind(dirent.kind)
    below = DIRENTS.name if kind is EntryKind.DIRECTORY else b"chunks"
    row = txn.get_raw(_TABLES[kind].name, tables.u64(dirent.id))
    left = row is not None or next(txn.scan_raw(below, prefix=tables.u64(dirent.id)), None) is not None
    return Finding(
        Kind.DIRENT_DANGLING,
        Severity.DAMAGE,
        subject,
        f"it leads to {kind.name.lower()} {dirent.id}, whose record is {'damaged or ' if left else ''}missing",
        mend=None if left else Mend.DROP_ROW,
        remedy=RECOVER if left else None,
        row=(DIRENTS.name, key),
    )


def _wrong(txn: ReadTransaction, key: bytes, dirent: Any, found: Any, subject: str) -> Finding:
    """A second name. It is the wrong one for sure only if the record's own name leads there too."""
    own = message(txn, DIRENTS, tables.dirent(found.parent_id, found.name))
    second = own is not None and (own.kind, own.id) == (dirent.kind, dirent.id)
    return Finding(
        Kind.DIRENT_WRONG,
        Severity.DAMAGE,
        subject,
        f"its record says that it is {names.printable(found.name)} in directory {found.parent_id}",
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
