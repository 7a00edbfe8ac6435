"""Listings of directories: each continues after a name, but the kernel keeps a number, the entry's id.

Ids are never used twice, so names that appear and vanish while a directory is listed neither repeat nor hide others,
and a listing of any size holds a bounded number of names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import closing

from tierfs.base.words.errors import Fenced
from tierfs.base.words.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentId
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.directories import Entry
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.engine.metadata.transaction import ReadTransaction

# The kernel counts no lookup for these two.
DOTS = (".", "..")

# The token of the start of a listing; ids are above it.
START = 0

# Tokens that are no entry's id: ids never reach the one, and the root is in no listing.
_AFTER_DOT, _AFTER_DOTS = (1 << 63) - 1, int(ROOT_DIRECTORY)

# Names kept for entries that are deleted during the listing: more than the kernel takes with one request (measured:
# about 25 of them in 4 KiB; libfuse takes 1 MiB at most).
_NAMES_KEPT = 8192


class DirectoryListing:
    """One open directory."""

    def __init__(self, directory_id: DirectoryId) -> None:
        self._directory_id = directory_id
        self._names: OrderedDict[int, str] = OrderedDict()

    def entries(self, txn: ReadTransaction, token: int) -> Generator[tuple[Entry, int]]:
        """Yield the entries after the one of `token`, each with its own token; START is the beginning.

        `.` and `..` are first, the others in name order. Raises Fenced for a token whose entry was deleted long ago.
        """
        if token in (START, _AFTER_DOT):
            yield from list(self._dots(txn))[token == _AFTER_DOT :]
        after = "" if token in (START, _AFTER_DOT, _AFTER_DOTS) else self._name_of(txn, token)
        with closing(directories.entries(txn, self._directory_id, after=after)) as following:
            for entry in following:
                yield entry, entry.id

    def given(self, entry: Entry) -> None:
        """Note that the kernel took an entry, with its id as the token to continue after it."""
        self._names[entry.id] = entry.name
        self._names.move_to_end(entry.id)
        if len(self._names) > _NAMES_KEPT:
            self._names.popitem(last=False)

    def _dots(self, txn: ReadTransaction) -> Iterator[tuple[Entry, int]]:
        """Yield the directory and its parent, which for the root is the root; neither for a deleted one."""
        record = txn.get(DIRECTORIES, tables.u64(self._directory_id))
        if record is not None:
            yield Entry(DOTS[0], EntryKind.DIRECTORY, record.id), _AFTER_DOT
            yield Entry(DOTS[1], EntryKind.DIRECTORY, record.parent_id or ROOT_DIRECTORY), _AFTER_DOTS

    def _name_of(self, txn: ReadTransaction, token: int) -> str:
        name = self._names.get(token)
        if name is not None:
            return name
        record = directories.segment(txn, SegmentId(token)) or txn.get(DIRECTORIES, tables.u64(token))
        if record is None or record.parent_id != self._directory_id:
            raise Fenced("the listing cannot continue: the entry it had reached was deleted")
        return record.name
