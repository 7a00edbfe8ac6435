"""Copies that a program's offloader made of ledgers that are gone: rows until it has deleted them.

A program gives its offloader to a managed ledger (PIP-17). Retention and commands delete ledgers without the program,
so the commit that removes the last record of a ledger leaves a row for its copy. The rows are of this host: a recovered
store has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import Conflict
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.holder_records import FailureRecord
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.tables import FAILURES
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# Property of an attempt's context: the managed ledger, as the program named it.
PATH = "managedLedger"

_COPY = "copy of ledger"


@dataclass(frozen=True, slots=True)
class OwedCopy:
    """A copy to be deleted."""

    ledger_id: int
    uuid: UUID

    @property
    def what(self) -> str:
        """Key of its row."""
        return f"{_COPY} {self.ledger_id} {self.uuid}"


def owe(txn: WriteTransaction, segment: SegmentRecord) -> None:
    """Leave a row for the copy of a ledger that is being removed, if an offloader began one."""
    ledger = entries.find(txn, segment.id)
    uuid = ledger.elsewhere.uuid
    if uuid is None:
        return
    path = ledger.elsewhere.driver_properties.get(PATH)
    if path is None:  # of a version that did not record it
        path = directories.path_of(txn, segment.parent_id, "").removesuffix("/")
    number = segment.id if ledger.ledger_id is None else ledger.ledger_id
    owed = OwedCopy(number, uuid)
    why = f"ledger {number} was deleted, and {ledger.elsewhere.driver_name} has a copy of it, attempt {uuid}"
    row = FailureRecord(
        what=owed.what,
        name=path,
        bytes=segment.length,
        since_ms=txn.now_ms,
        error_kind=Conflict.__name__,
        error=f"{why}; the next offload_prefix() or trim() with that offloader deletes it",
    )
    txn.put(FAILURES, row.what.encode(), row)


def owed(txn: ReadTransaction, path: str) -> Iterator[OwedCopy]:
    """Yield the copies of a managed ledger's deleted ledgers."""
    for _, row in txn.scan(FAILURES, prefix=f"{_COPY} ".encode()):
        if row.name == path:
            number, _, uuid = row.what.removeprefix(f"{_COPY} ").partition(" ")
            yield OwedCopy(int(number), UUID(uuid))


def paid(txn: WriteTransaction, copy: OwedCopy) -> None:
    """Remove the row of a copy that was deleted."""
    txn.delete(FAILURES.name, copy.what.encode())
