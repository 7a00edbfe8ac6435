"""Offload the ledgers of a managed ledger by an Offloader that a program gives it (PIP-17's asyncOffloadPrefix).

What the offloader copies is a copy more: the tiers keep every byte, because only copies that tierfs itself verifies
may replace one. The context of each ledger, with its attempt, is in the ledger's record and in the bucket's journal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

from tierfs import names
from tierfs.errors import Conflict, NotFound
from tierfs.ledger.offloader import Offloader, ReadableLedger
from tierfs.metadata import directories, entries
from tierfs.metadata.ledger_and_batch_records import OffloadProgress
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.segments import positions
from tierfs.segments.positions import MemberLedger, Position
from tierfs.types import SegmentId

log = logging.getLogger(__name__)

# Opens a ledger of the store by its name.
OpenLedger = Callable[[str], ReadableLedger]


class OffloadElsewhere:
    """Offloads the closed ledgers of one managed ledger with one offloader. Used by the managed ledger's writer."""

    def __init__(self, metadata: MetadataStore, path: str, offloader: Offloader, open_ledger: OpenLedger) -> None:
        self._metadata = metadata
        self._path = names.join(names.split(path))
        self._offloader = offloader
        self._open_ledger = open_ledger

    def offload_prefix(self, before: Position) -> Position:
        """Offload every closed ledger that lies wholly before a position, oldest first; return the first that is not.

        Repeating it offloads the rest. Raises NotFound, InvalidRequest for a position outside of the ledgers, Conflict
        where another run took a ledger over, and what the offloader raises.
        """
        with self._metadata.read() as txn:
            members = positions.members(txn, positions.directory_of(txn, self._path))
        wanted = [member for member in positions.closed_before(members, before, self._path) if member.segment.length]
        for member in wanted:
            if not member.known.elsewhere.complete:
                self._offload(member)
        done = {member.segment.id for member in wanted}
        rest = (member for member in members if member.segment.id not in done and not _is_done(member))
        return next((Position(member.ledger_id, 0) for member in rest), members[-1].end)

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
            self._delete(member.segment.id, ledger_id, uuid)

    def _offload(self, member: MemberLedger) -> None:
        earlier = member.known.elsewhere.uuid
        if earlier is not None:  # a run that failed, or was killed
            self._delete(member.segment.id, member.ledger_id, earlier)
        uuid = uuid4()
        # Crash order, as in the PIP: the attempt recorded -> copied -> recorded as complete. A later run finds the
        # attempt of one that was killed, and has its objects deleted.
        self._record(member.segment.id, None, OffloadProgress.begun(uuid, type(self._offloader).__name__))
        name = names.join((*names.split(self._path), member.segment.name))
        self._offloader.offload(self._open_ledger(name), uuid, {"ManagedLedgerName": self._path})
        begun = OffloadProgress.begun(uuid, type(self._offloader).__name__)
        completed = replace(begun, complete=True, timestamp_ms=self._metadata.clock.now_ms())
        self._record(member.segment.id, uuid, completed)

    def _delete(self, segment_id: SegmentId, ledger_id: int, uuid: UUID) -> None:
        """Delete a copy; its record goes afterwards, so that a deletion that fails is repeated."""
        self._offloader.delete_offloaded(ledger_id, uuid)
        self._record(segment_id, uuid, OffloadProgress())

    def _record(self, segment_id: SegmentId, expected: UUID | None, progress: OffloadProgress) -> None:
        with self._metadata.write() as txn:
            if directories.living_segment(txn, segment_id) is None:
                raise NotFound(f"ledger {segment_id} of {printable(self._path)} was deleted meanwhile")
            known = entries.find(txn, segment_id)
            if known.elsewhere.uuid != expected:
                raise Conflict(f"another program offloads ledger {known.ledger_id} of {printable(self._path)}")
            entries.put_ledger(txn, replace(known, elsewhere=progress))

    def _find(self, ledger_id: int) -> tuple[MemberLedger, UUID | None]:
        with self._metadata.read() as txn:
            members = positions.members(txn, positions.directory_of(txn, self._path))
        member = next((member for member in members if member.ledger_id == ledger_id), None)
        if member is None:
            raise NotFound(f"{printable(self._path)} has no ledger {ledger_id}")
        return member, member.known.elsewhere.uuid


def _is_done(member: MemberLedger) -> bool:
    """Return whether nothing of a ledger is left to offload: it is offloaded, or closed without an entry."""
    return member.known.elsewhere.complete or (member.segment.sealed and not member.segment.length)
