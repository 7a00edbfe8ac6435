"""Offload the ledgers of a managed ledger by an Offloader that a program gives it (PIP-17's asyncOffloadPrefix).

What the offloader copies is a copy more: the tiers keep every byte, because only copies that tierfs itself verifies
may replace one. The context of each ledger, with its attempt, is in the ledger's record and in the bucket's journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid4

from tierfs.base.bytes.parallel import Attempts
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, NotFound
from tierfs.base.words.names import printable
from tierfs.engine.ledger.offloader import Offloader, ReadableLedger
from tierfs.engine.metadata import copies_elsewhere, directories, entries
from tierfs.engine.metadata.ledger_records import OffloadProgress
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.segments import positions
from tierfs.engine.segments.positions import MemberLedger, Position
from tierfs.tiering.extra_metadata import NO_EXTRA
from tierfs.tiering.ledgers.managed import offload_each
from tierfs.tiering.objects import ChunksMoved

# Opens a ledger of the store by its name.
OpenLedger = Callable[[str], ReadableLedger]


class OffloadElsewhere:
    """Offloads the closed ledgers of one managed ledger with one offloader. Used by the managed ledger's writer."""

    def __init__(self, metadata: MetadataStore, path: str, offloader: Offloader, open_ledger: OpenLedger) -> None:
        self._metadata = metadata
        self._path = names.join(names.split(path))
        self._offloader = offloader
        self._open_ledger = open_ledger

    def offload_prefix(self, before: Position, extra: Mapping[str, str] = NO_EXTRA) -> Position:
        """Offload every closed ledger that lies wholly before a position, oldest first; return the first that is not.

        The offloader gets `extra` in addition to the metadata of tierfs.

        Repeating it offloads the rest. Copies of ledgers that were deleted since are deleted first. Raises NotFound,
        InvalidRequest for a position outside of the ledgers, and, after all others were attempted, the first error of
        a ledger: Conflict where another run took it over, and what the offloader raises.
        """
        with self._metadata.read() as txn:
            members = positions.members(txn, positions.directory_of(txn, self._path))
        wanted = [member for member in positions.closed_before(members, before, self._path) if member.entries]
        attempts = Attempts()
        self._delete_owed(attempts)
        todo = [member for member in wanted if not member.known.elsewhere.complete]
        offload_each(todo, self._path, partial(self._offload, extra=extra), attempts)
        done = {member.segment.id for member in wanted}
        rest = (member for member in members if member.segment.id not in done and not _is_done(member))
        return next((Position(member.ledger_id, 0) for member in rest), members[-1].end)

    def delete_before(self, before: Position, attempts: Attempts) -> None:
        """Have the offloader delete its copies of the closed ledgers before a position, which are to be deleted.

        Errors are those of `attempts`. A copy that stays is owed: it is deleted by a later run.
        """
        with self._metadata.read() as txn:
            members = positions.members(txn, positions.directory_of(txn, self._path))
        for member in positions.closed_before(members, before, self._path):
            uuid = member.known.elsewhere.uuid
            if uuid is not None:
                with attempts.step():
                    self._delete(member, uuid)
        self._delete_owed(attempts)

    def _delete_owed(self, attempts: Attempts) -> None:
        """Delete copies of ledgers that the store deleted without the offloader: by retention, or by a command."""
        with self._metadata.read() as txn:
            owed = list(copies_elsewhere.owed(txn, self._path))
        for copy in owed:
            with attempts.step():
                self._delete_one(copy)

    def _delete_one(self, copy: copies_elsewhere.OwedCopy) -> None:
        self._offloader.delete_offloaded(copy.ledger_id, copy.uuid)
        with self._metadata.write_notes() as txn:
            copies_elsewhere.paid(txn, copy)

    def read_offloaded(self, ledger_id: int) -> ReadableLedger:
        """Return a ledger as the offloader has it. Raises NotFound where it was not offloaded."""
        member, uuid = self._find(ledger_id)
        if uuid is None or not member.known.elsewhere.complete:
            raise NotFound(f"ledger {ledger_id} of {printable(self._path)} was not offloaded by this offloader")
        return self._offloader.read_offloaded(ledger_id, uuid)

    def delete_offloaded(self, ledger_id: int) -> None:
        """Have the offloader delete its copy of a ledger, and forget the attempt. Raises NotFound."""
        member, uuid = self._find(ledger_id)
        if uuid is not None:
            self._delete(member, uuid)

    def _offload(self, member: MemberLedger, extra: Mapping[str, str]) -> int:
        """Make one attempt; return the bytes. Raises ChunksMoved for a ledger that was deleted meanwhile."""
        earlier = member.known.elsewhere.uuid
        if earlier is not None:  # a run that failed, or was killed
            self._delete(member, earlier)
        uuid = uuid4()
        # Crash order, as in the PIP: the attempt recorded -> copied -> recorded as complete. A later run finds the
        # attempt of one that was killed, and has its objects deleted.
        begun = OffloadProgress.begun(uuid, type(self._offloader).__name__, {copies_elsewhere.PATH: self._path})
        self._record(member, None, begun)
        name = names.join((*names.split(self._path), member.segment.name))
        try:
            opened = self._open_ledger(name)
        except NotFound as exc:
            raise self._deleted(member) from exc
        self._offloader.offload(opened, uuid, {**extra, "ManagedLedgerName": self._path})
        completed = replace(begun, complete=True, timestamp_ms=self._metadata.clock.now_ms())
        try:
            self._record(member, uuid, completed)
        except ChunksMoved:
            # The record of the attempt went with the ledger, perhaps before there was anything to delete.
            self._delete_one(copies_elsewhere.OwedCopy(member.ledger_id, uuid))
            raise
        return member.segment.length

    def _delete(self, member: MemberLedger, uuid: UUID) -> None:
        """Delete a copy; its record goes afterwards, so that a deletion that fails is repeated."""
        self._offloader.delete_offloaded(member.ledger_id, uuid)
        self._record(member, uuid, OffloadProgress())

    def _record(self, member: MemberLedger, expected: UUID | None, progress: OffloadProgress) -> None:
        """Write the state of an attempt. Raises ChunksMoved for a deleted ledger, Conflict for another's attempt."""
        with self._metadata.write() as txn:
            if directories.living_segment(txn, member.segment.id) is None:
                raise self._deleted(member)
            known = entries.find(txn, member.segment.id)
            if known.elsewhere.uuid != expected:
                raise Conflict(f"another program offloads ledger {member.ledger_id} of {printable(self._path)}")
            entries.put_ledger(txn, replace(known, elsewhere=progress))

    def _deleted(self, member: MemberLedger) -> ChunksMoved:
        return ChunksMoved(f"ledger {member.ledger_id} of {printable(self._path)} was deleted meanwhile")

    def _find(self, ledger_id: int) -> tuple[MemberLedger, UUID | None]:
        with self._metadata.read() as txn:
            members = positions.members(txn, positions.directory_of(txn, self._path))
        member = next((member for member in members if member.ledger_id == ledger_id), None)
        if member is None:
            raise NotFound(f"{printable(self._path)} has no ledger {ledger_id}")
        return member, member.known.elsewhere.uuid


def _is_done(member: MemberLedger) -> bool:
    """Return whether nothing of a ledger is left to offload: it is offloaded, or closed without an entry."""
    return member.known.elsewhere.complete or (member.segment.sealed and not member.entries)
