"""Terminating a managed ledger: its ledgers are closed, and it takes no more, for good."""

from __future__ import annotations

from dataclasses import replace

from tierfs.metadata import directories, journal, keys
from tierfs.metadata.tables import DIRECTORIES
from tierfs.metadata.transaction import WriteTransaction
from tierfs.segments import ownership, positions, seal, seal_record
from tierfs.segments.positions import Position
from tierfs.segments.writer_locks import WriterLocks


def terminate(txn: WriteTransaction, writer_locks: WriterLocks, path: str) -> tuple[Position | None, list[str]]:
    """Close what is open and note that nothing follows; idempotent.

    Returns the position of the last entry, None without one, and the files that ended. Raises NotFound,
    InvalidRequest for a segment, Conflict naming a live writer of an open ledger.
    """
    directory_id = positions.directory_of(txn, path)
    found = positions.members(txn, directory_id)
    ended: list[str] = []
    for member in found:
        if not member.segment.sealed:
            file = seal.active_file(txn, member.segment)
            seal_record.write(txn, ownership.fence(txn, member.segment, writer_locks))
            ended += [] if file is None else [file]
    record = directories.directory(txn, directory_id)
    if not record.terminated:
        terminated = replace(record, terminated=True)
        txn.put(DIRECTORIES, keys.u64(directory_id), terminated)
        journal.directory_changed(txn, terminated)
    last = next((one for one in reversed(found) if one.entries), None)
    return None if last is None else Position(last.ledger_id, last.entries - 1), ended
