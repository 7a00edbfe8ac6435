"""ManagedOffload: make the ledgers of a managed ledger cold up to a position, oldest first (PIP-17).

Each ledger is a separate attempt, so a run that ends early, by an error or a crash, keeps its finished ledgers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words import names
from tierfs.base.words.errors import NotFound
from tierfs.base.words.names import printable
from tierfs.base.words.types import SegmentId
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.segments import positions
from tierfs.engine.segments.positions import MemberLedger, Position
from tierfs.tiering.extra_metadata import NO_EXTRA
from tierfs.tiering.ledgers.offload import LedgerOffloader
from tierfs.tiering.ledgers.offload_runs import OffloadRuns
from tierfs.tiering.objects import ChunksMoved

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PrefixOffloaded:
    """Result of an offload of a prefix."""

    first_unoffloaded: str
    """Position of the first entry after the prefix, as LEDGER:ENTRY; empty if there is no ledger."""
    ledgers: int = 0
    bytes: int = 0
    already_cold: int = 0
    """Ledgers before the position that were cold already."""
    journal_entries: int = 0


def offload_each(
    ledgers: Sequence[MemberLedger],
    path: str,
    offload: Callable[[MemberLedger], int],
    attempts: Attempts,
    report: OnProgress = unseen,
) -> None:
    """Offload the ledgers of a managed ledger in order: by the store itself, and by an offloader of a program.

    `offload` returns the bytes of one, or raises ChunksMoved for one that was deleted meanwhile: it is skipped. Raises
    Fenced, and the first error, that of `attempts` included, after all ledgers were attempted.
    """
    meter = Meter(report, sum(member.segment.length for member in ledgers), len(ledgers), "ledger")
    for member in ledgers:
        name, size = names.join((*names.split(path), member.segment.name)), 0
        with attempts.step():
            try:
                size = offload(member)
            except ChunksMoved as exc:
                log.info("ledger %s is skipped: %s", printable(name), exc)
        meter(size, name, 1)
    attempts.end()


@dataclass(frozen=True, slots=True)
class _Plan:
    ledgers: tuple[MemberLedger, ...]
    first_unoffloaded: str
    already_cold: int


class ManagedOffload:
    """Offloads of ledgers and prefixes. Thread-safe; the process must hold the store."""

    def __init__(self, metadata: MetadataStore, ledgers: LedgerOffloader) -> None:
        self._metadata = metadata
        self._ledgers = ledgers
        self._runs = OffloadRuns()

    def offload_one(self, segment_id: SegmentId, extra: Mapping[str, str] = NO_EXTRA) -> int:
        """Make a closed ledger cold after any run by hand on its managed ledger; return the number of bytes.

        `extra`: checked extra metadata of its objects.

        Raises ChunksMoved when it was deleted, and as LedgerOffloader.offload.
        """
        with self._metadata.read() as txn:
            segment = directories.segment(txn, segment_id)
        if segment is None:
            raise ChunksMoved(f"ledger {segment_id} was deleted meanwhile")
        with self._runs.by_itself(segment.parent_id):
            return self._offload(segment_id, extra)

    def offload_prefix(
        self, path: str, before: Position | None, report: OnProgress, extra: Mapping[str, str] = NO_EXTRA
    ) -> PrefixOffloaded:
        """Make every closed ledger cold that ends before a position, oldest first; None means every closed one.

        Ledgers without entries and cold ones are skipped; a ledger that is deleted meanwhile is not an error.

        Raises NotFound, InvalidRequest for a position outside the ledgers, Conflict during another offload of the
        managed ledger, Fenced, and the first error of a ledger after all others were attempted.
        """
        with self._metadata.read() as txn:
            directory_id = positions.directory_of(txn, path)
        with self._runs.by_hand(directory_id, path):
            with self._metadata.read() as txn:
                plan = _plan(positions.members(txn, directory_id), before, path)
            return self._carry_out(path, plan, report, extra)

    def _carry_out(self, path: str, plan: _Plan, report: OnProgress, extra: Mapping[str, str]) -> PrefixOffloaded:
        sizes: list[int] = []

        def offload(member: MemberLedger) -> int:
            sizes.append(self._offload(member.segment.id, extra))
            return sizes[-1]

        offload_each(plan.ledgers, path, offload, Attempts(), report)
        return PrefixOffloaded(plan.first_unoffloaded, len(sizes), sum(sizes), plan.already_cold)

    def _offload(self, segment_id: SegmentId, extra: Mapping[str, str]) -> int:
        """Make one attempt. Raises ChunksMoved for a ledger that was deleted meanwhile."""
        try:
            return self._ledgers.offload(segment_id, uuid4(), extra)
        except NotFound as exc:
            with self._metadata.read() as txn:
                if directories.segment(txn, segment_id) is not None:
                    raise
            raise ChunksMoved(str(exc)) from exc


def _plan(members: Sequence[MemberLedger], before: Position | None, path: str) -> _Plan:
    closed = [member for member in members if member.segment.sealed]
    before_it = closed if before is None else positions.closed_before(members, before, path)
    ids = {member.segment.id for member in before_it}
    inside = [member for member in before_it if member.entries]
    following = next((member for member in members if member.segment.id not in ids), None)
    end = members[-1].end if members else ""
    first = end if following is None else Position(following.ledger_id, 0)
    todo = tuple(member for member in inside if not member.is_cold)
    return _Plan(todo, str(first), len(inside) - len(todo))
