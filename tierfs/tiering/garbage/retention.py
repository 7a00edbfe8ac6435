"""Retention: segments that policy seals, and bytes that policy no longer keeps (design §7).

The transaction that takes bytes away decides again which, from the records of that moment. Names and records go at
once, local files too; cold objects become garbage that waits for the journal and the grace period.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Attempts
from tierfs.base.options.policy import Policy
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict
from tierfs.base.words.types import DirectoryId, SegmentId, SegmentKind
from tierfs.engine.metadata import directories, policies
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.engine.segments import ledgers, streams, truncate
from tierfs.engine.segments.engine import Engine
from tierfs.tiering.garbage import lifetimes
from tierfs.tiering.garbage.lifetimes import Expiry, Member, MemberRun, expired, next_expiry_ms

log = logging.getLogger(__name__)

# Segments looked at per transaction, so that no old snapshot of the database is held for long.
_LOOK_BATCH = 1000

# Later than any time.
_NEVER_MS = 1 << 62

# A time at which nothing has an age.
_NEVER_OLD_MS = 0

# A ledger of a few hundred chunks goes in some 10 ms (guess).
_LEDGERS_PER_COMMIT = 20

# Chunks removed per commit: some 10 ms, so that appends hardly wait.
_RUNS_PER_COMMIT = 1000

# Chunks of a stream that are looked at to count those that wait: some 100 ms (a guess) of a pass every 5 minutes.
_RUNS_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of a pass."""

    sealed: int = 0
    """Segments sealed by policy and continued in a successor."""
    removed: int = 0
    """Segments of which nothing is left."""
    bytes: int = 0

    def plus(self, expiry: Expiry) -> Expired:
        """Add one more segment that lost its head, or went."""
        return replace(self, removed=self.removed + expiry.removes, bytes=self.bytes + expiry.bytes)


class Retention:
    """Ends segments and their bytes when their time is over. Used by the holder only."""

    def __init__(self, metadata: MetadataStore, engine: Engine, *, grace_s: int) -> None:
        self._metadata = metadata
        self._engine = engine
        self._grace_ms = grace_s * 1000
        self._next_ms = _NEVER_MS
        self._overdue_bytes, self._overdue = 0, ""
        """Bytes past their retention that wait, as a pass met them, and where and why the first of them do."""
        self._managed_ledgers: set[DirectoryId] = set()
        """The managed ledgers that a pass met."""

    def seal(self, attempts: Attempts, *, by_age: bool = True) -> int:
        """Seal every segment that is long or old enough; return how many. One that fails is passed over.

        Without `by_age` none is old.
        """
        now_ms, sealed = self._metadata.clock.now_ms() if by_age else _NEVER_OLD_MS, 0
        for segment_id in self._due(self._is_to_be_sealed, attempts, now_ms):
            with attempts.step():
                sealed += self._engine.end_if_due(segment_id, now_ms=now_ms)
        return sealed

    def expire(self, attempts: Attempts) -> Expired:
        """Take away what is no longer kept; note when the next bytes go, and those that wait for their offload.

        Cold objects go after the grace period. A segment that fails is passed over.
        """
        total, self._next_ms = Expired(), _NEVER_MS
        self._overdue_bytes, self._overdue = 0, ""
        self._managed_ledgers = set()
        for segment_id in self._due(self._has_expired, attempts, self._metadata.clock.now_ms()):
            with attempts.step():
                for expiry in self._expire_stream(segment_id):
                    total = total.plus(expiry)
        for directory_id in self._managed_ledgers:
            with attempts.step():
                for expiry in self._expire_ledgers(directory_id):
                    total = total.plus(expiry)
        self._note()
        return total

    def _due(
        self, wanted: Callable[[ReadTransaction, SegmentRecord, int], bool], attempts: Attempts, now_ms: int
    ) -> Iterator[SegmentId]:
        """Yield the segments below a policy on lifetimes for which there is something to do at a time."""
        with self._metadata.read() as txn:
            candidates = iter(lifetimes.governed(txn))
        while batch := list(islice(candidates, _LOOK_BATCH)):
            due: list[SegmentId] = []
            with self._metadata.read() as txn:
                for segment_id in batch:
                    with attempts.step():
                        segment = directories.living_segment(txn, segment_id)
                        if segment is not None and wanted(txn, segment, now_ms):
                            due.append(segment_id)
            yield from due

    def _is_to_be_sealed(self, txn: ReadTransaction, segment: SegmentRecord, now_ms: int) -> bool:
        if segment.sealed:
            return False
        policy = policies.effective(txn, segment)
        if segment.kind is SegmentKind.LEDGER:
            return ledgers.is_due(txn, segment, policy, now_ms)
        return streams.is_long(segment, policy) or streams.is_old(segment, policy, now_ms)

    def _has_expired(self, txn: ReadTransaction, segment: SegmentRecord, now_ms: int) -> bool:
        """Return whether a stream has expired bytes, as its first member answers for all; only note ledgers."""
        if segment.kind is SegmentKind.LEDGER:
            self._managed_ledgers.add(segment.parent_id)
            return False
        if streams.predecessor(txn, segment) is not None:
            return False
        self._see_overdue(txn, lifetimes.members(txn, segment), lifetimes.members(txn, segment, waits=False), now_ms)
        if next(expired(lifetimes.members(txn, segment), now_ms), None) is not None:
            return True
        self._next_ms = min(self._next_ms, next_expiry_ms(lifetimes.members(txn, segment)) or _NEVER_MS)
        return False

    def _see_overdue(
        self, txn: ReadTransaction, members: Sequence[Member], free: Sequence[Member], now_ms: int
    ) -> None:
        """Count the bytes of a stream that are past their retention and wait for their offload."""
        if not any(member.policy.retention_needs_offload for member in members):
            return
        overdue = lifetimes.overdue(*(expired(_bounded(side, _RUNS_COUNTED), now_ms) for side in (members, free)))
        if overdue is None:
            return
        self._overdue_bytes += overdue.bytes
        if not self._overdue:
            segment = directories.segment_by_id(txn, overdue.first)
            path = directories.path_of(txn, segment.parent_id, segment.name)
            self._overdue = f"{names.printable(path)}: {lifetimes.reason_to_wait(policies.in_force(txn, segment))}"

    def _note(self) -> None:
        """Note for `status` the time of the next expiry and what waits, unless both are the same as before."""
        notes = {
            "next_expiry_ms": 0 if self._next_ms == _NEVER_MS else self._next_ms,
            "overdue_bytes": self._overdue_bytes,
            "overdue_reason": self._overdue,
        }
        with self._metadata.read() as txn:
            if all(getattr(txn.store, key) == value for key, value in notes.items()):
                return
        with self._metadata.write_notes() as txn:
            txn.update_store(**notes)

    def _expire_stream(self, segment_id: SegmentId) -> Iterator[Expiry]:
        """Take away what has expired of the stream that begins with a segment, in commits of bounded size."""
        while True:
            with self._metadata.write() as txn:
                first = directories.living_segment(txn, segment_id)
                if first is None or streams.predecessor(txn, first) is not None:
                    return
                todo = list(expired(_bounded(lifetimes.members(txn, first), _RUNS_PER_COMMIT), txn.now_ms))
                going_on = streams.successor(txn, first)
                taken = list(takewhile(partial(self._take, txn), todo))
                if not todo:
                    self._next_ms = min(self._next_ms, next_expiry_ms(lifetimes.members(txn, first)) or _NEVER_MS)
            yield from taken
            if not todo or len(taken) < len(todo):
                return
            if todo[0].segment_id == segment_id and todo[0].removes and going_on is not None:
                segment_id = going_on.id

    def _expire_ledgers(self, managed_ledger: DirectoryId) -> Iterator[Expiry]:
        """Take away the oldest ledgers that have expired, a few per commit. No ledger loses its head alone.

        There may be thousands: a commit looks again at those that it takes, and goes by the sum of the others.
        """
        now_ms = self._metadata.clock.now_ms()
        with self._metadata.read() as txn:
            members = lifetimes.ledger_members(txn, managed_ledger)
            self._see_overdue(txn, members, lifetimes.ledger_members(txn, managed_ledger, waits=False), now_ms)
        due = iter(list(expired(members, now_ms)))
        left_bytes, gone = sum(member.length for member in members), 0
        while batch := list(islice(due, _LEDGERS_PER_COMMIT)):
            left_bytes -= sum(expiry.bytes for expiry in batch)
            with self._metadata.write() as txn:
                again = self._looked_at_again(txn, batch)
                todo = expired([*again, Member(SegmentId(0), Policy(), 0, left_bytes, runs=())], txn.now_ms)
                taken = list(takewhile(partial(self._take, txn), todo))
            yield from taken
            gone += len(taken)
            if len(taken) < len(batch):
                break
        self._next_ms = min(self._next_ms, next_expiry_ms(members[gone:]) or _NEVER_MS)

    def _looked_at_again(self, txn: ReadTransaction, batch: Sequence[Expiry]) -> list[Member]:
        segments = [directories.living_segment(txn, expiry.segment_id) for expiry in batch]
        present = (segment for segment in segments if segment is not None)
        return lifetimes.as_members(txn, present)

    def _take(self, txn: WriteTransaction, expiry: Expiry) -> bool:
        """Take away one expiry; False if it waits for an idle writer, which leaves the segment with its next append."""
        segment = directories.segment(txn, expiry.segment_id)
        assert segment is not None
        due_ms = txn.now_ms + self._grace_ms
        if not expiry.removes:
            truncate.cut(txn, segment, expiry.before_offset, cold_due_ms=due_ms)
            return True
        try:
            self._engine.remove(txn, segment, cold_due_ms=due_ms)
        except Conflict as exc:
            log.info("retention of %s waits: %s", directories.full_name(txn, segment), exc)
            return False
        return True


def _bounded(members: Sequence[Member], runs: int) -> list[Member]:
    """Return the same members, with no more runs in all."""
    budget = iter(range(runs))
    return [replace(member, runs=_limited(member.runs, budget)) for member in members]


def _limited(runs: Iterable[MemberRun], budget: Iterator[int]) -> Iterator[MemberRun]:
    for run, _ in zip(runs, budget, strict=False):
        yield run
