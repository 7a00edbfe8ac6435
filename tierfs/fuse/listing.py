"""Listings of directories: where one goes on is a name, but the kernel keeps a number.

The number is the entry's id: never used twice, so names that come and go while a directory is listed
neither repeat nor hide others, and a listing of any size holds a bounded number of names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import closing

from tierfs.errors import Fenced
from tierfs.metadata import directories, keys
from tierfs.metadata.directories import Entry
from tierfs.metadata.tables import DIRECTORIES
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import ROOT_DIRECTORY, DirectoryId, EntryKind, SegmentId

DOTS = (".", "..")
"""Of these two the kernel counts no lookup."""

START = 0
"""The token of the beginning; ids begin above it."""

_AFTER_DOT, _AFTER_DOTS = (1 << 63) - 1, int(ROOT_DIRECTORY)
"""Tokens that are no entry's id: ids never get as far, and the root is in no listing."""

_NAMES_KEPT = 8192
"""For entries deleted behind the listing's back: more than the kernel takes with one request (measured:
about 25 of them in 4 KiB; libfuse takes 1 MiB at most)."""


class Listing:
    """One open directory."""

    def __init__(self, directory_id: DirectoryId) -> None:
        self._directory_id = directory_id
        self._names: OrderedDict[int, str] = OrderedDict()

    def entries(self, txn: ReadTransaction, token: int) -> Generator[tuple[Entry, int]]:
        """Entries behind the one that `token` was given for, each with its own token; START is the beginning.

        `.` and `..` come first, the others in name order. Raises Fenced for a token whose entry was deleted long ago.
        """
        if token in (START, _AFTER_DOT):
            yield from list(self._dots(txn))[token == _AFTER_DOT :]
        after = "" if token in (START, _AFTER_DOT, _AFTER_DOTS) else self._name_of(txn, token)
        with closing(directories.entries(txn, self._directory_id, after=after)) as found:
            for entry in found:
                yield entry, entry.id

    def given(self, entry: Entry) -> None:
        """The kernel took an entry, with its id as the token to go on behind it."""
        self._names[entry.id] = entry.name
        self._names.move_to_end(entry.id)
        if len(self._names) > _NAMES_KEPT:
            self._names.popitem(last=False)

    def _dots(self, txn: ReadTransaction) -> Iterator[tuple[Entry, int]]:
        """The directory itself and the one above, which of the root is the root; neither of one that was deleted."""
        record = txn.get(DIRECTORIES, keys.u64(self._directory_id))
        if record is not None:
            yield Entry(DOTS[0], EntryKind.DIRECTORY, record.id), _AFTER_DOT
            yield Entry(DOTS[1], EntryKind.DIRECTORY, record.parent_id or ROOT_DIRECTORY), _AFTER_DOTS

    def _name_of(self, txn: ReadTransaction, token: int) -> str:
        name = self._names.get(token)
        if name is not None:
            return name
        found = directories.segment(txn, SegmentId(token)) or txn.get(DIRECTORIES, keys.u64(token))
        if found is None or found.parent_id != self._directory_id:
            raise Fenced("the listing cannot go on: the entry it had come to was deleted")
        return found.name
