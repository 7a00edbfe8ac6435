"""Adopt planned segments and ledgers: read them in parallel, commit each as a whole, and report each outcome.

`Adoption` reads the parts of many segments in parallel and commits the segments one by one; `LedgerAdoption` reads
several ledgers at a time, each with read-ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import takewhile

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.parallel import Pool, caught
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import (
    AlreadyExists,
    Closed,
    Conflict,
    DataLoss,
    Fenced,
    InvalidRequest,
    NotFound,
    StorageFull,
    TierfsError,
    Unavailable,
)
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.ledger.single_object import MagicWords
from tierfs.engine.metadata.records import LocationRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.reading.ledger_objects import Pieces
from tierfs.tiering.adoption import ledger_standing
from tierfs.tiering.adoption.grow import Difference, compare
from tierfs.tiering.adoption.ledger_grow import LedgerGrowth, growth_of
from tierfs.tiering.adoption.ledger_link import LedgerLinker
from tierfs.tiering.adoption.ledger_read import FoundLedger, LedgerReader
from tierfs.tiering.adoption.ledger_standing import Standing
from tierfs.tiering.adoption.link import link
from tierfs.tiering.adoption.plan import AnyPlan, LedgerPlan, SegmentPlan
from tierfs.tiering.adoption.read import PartSums, ReadPart, join, parts_of, read_part
from tierfs.tiering.objects import ColdTier

log = logging.getLogger(__name__)

# Errors that every later segment would raise too.
OF_THE_STORE = (Fenced, StorageFull, Closed)

# Errors of the objects of one offload attempt; those of another may be whole.
OF_AN_ATTEMPT = (DataLoss, NotFound, AlreadyExists, Conflict, InvalidRequest)

# Segments in a row without an answer from a place, each after its retries; then it counts as down (a guess).
GIVE_UP_AFTER = 8


class State(StrEnum):
    """Outcome of a segment."""

    PLANNED = "would be adopted"
    WOULD_GROW = "would grow"
    WOULD_BE_TRUNCATED = "would be truncated"
    WOULD_BE_READ = "would be read again"
    """Its bytes, in other objects or under other etags; whether they are the same is not known before."""
    ADOPTED = "adopted"
    ALREADY = "already adopted"
    GROWN = "grown"
    TRUNCATED = "truncated"
    """Its system deleted its head."""
    RELINKED = "linked anew"
    """The same bytes, in other objects than before."""
    TAKEN_BACK = "taken back"
    """It was adopted before, with bytes that were recorded as lost or suspect until now."""
    FAILED = "failed"
    NOT_TRIED = "not tried"


# Outcome by the segment's standing before.
STATES = {
    Standing.NEW: State.ADOPTED,
    Standing.ADOPTED: State.ALREADY,
    Standing.IN_DOUBT: State.TAKEN_BACK,
    Standing.MOVED: State.RELINKED,
}


@dataclass(frozen=True, slots=True)
class AdoptionOutcome:
    """One segment of a plan and its outcome."""

    plan: AnyPlan
    state: State
    error: TierfsError | None = None
    ledger: FoundLedger | None = None
    """Summary of a ledger that was read."""
    new_bytes: int = 0
    """Bytes that the segment gained at its end; all of a new one."""
    removed_bytes: int = 0
    """Bytes that it lost at its head."""


@dataclass(slots=True)
class _Segment:
    """A segment whose parts are being read."""

    index: int
    plan: SegmentPlan
    difference: Difference | None = None
    waiting: int = 0
    """Number of parts not read yet, including those not begun."""
    parts: list[tuple[ReadPart, PartSums]] = field(default_factory=list)
    error: TierfsError | None = None


class Adoption:
    """One run over the segments of one place; used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        storage: ChunkStorage,
        place: LocationRecord,
        jobs: int,
        advance: Meter,
        *,
        appended: bool = False,
        grows: bool = False,
        thorough: bool = True,
    ) -> None:
        """Prepare a run.

        `appended`: the system appends to its objects; `grows`: new segments stay unsealed, for what comes; `thorough`:
        see grow.compare.
        """
        self._appended = appended
        self._grows = grows
        self._thorough = thorough
        self._metadata = metadata
        self._storage = storage
        self._place = place
        self._jobs = jobs
        self._advance = advance
        self._outcomes: dict[int, AdoptionOutcome] = {}
        self._unanswered = 0
        self._stop = False

    def run(self, plans: Sequence[SegmentPlan]) -> list[AdoptionOutcome]:
        """Adopt the segments, each as a whole or not at all; in the order of `plans`."""
        with Pool(self._jobs, "tierfs-adopt") as pool:
            for (segment, part), sums in pool.as_completed(caught(self._read), self._parts(plans)):
                if segment.error is not None:
                    continue
                if isinstance(sums, TierfsError):
                    self._fail(segment, sums)
                else:
                    self._arrived(segment, part, sums)
        missing = (State.NOT_TRIED, None)
        return [self._outcomes.get(index) or AdoptionOutcome(plan, *missing) for index, plan in enumerate(plans)]

    def _read(self, wanted: tuple[_Segment, ReadPart]) -> PartSums:
        return read_part(self._storage, wanted[1])

    def _parts(self, plans: Sequence[SegmentPlan]) -> Iterator[tuple[_Segment, ReadPart]]:
        """Yield the parts to read, until the run stops; no further parts of a segment that failed."""
        for index, plan in enumerate(plans):
            if self._stop:
                return
            segment = _Segment(index, plan)
            for part in self._begin(segment):
                if segment.error is not None or self._stop:
                    break
                yield segment, part

    def _begin(self, segment: _Segment) -> list[ReadPart]:
        """Return the parts of a segment; none for one that is adopted, failed or empty."""
        try:
            with self._metadata.read() as txn:
                difference = compare(txn, segment.plan, self._place, thorough=self._thorough)
        except TierfsError as exc:
            self._fail(segment, exc)
            return []
        segment.difference = difference
        self._advance(segment.plan.object_bytes - difference.read_bytes, segment.plan.name)
        if difference.nothing:
            self._end(segment, State.ALREADY)
            return []
        parts = list(parts_of(difference.reads, appended=self._appended))
        segment.waiting = len(parts)
        if not parts:
            self._link(segment, difference)
        return parts

    def _arrived(self, segment: _Segment, part: ReadPart, sums: PartSums) -> None:
        segment.parts.append((part, sums))
        segment.waiting -= 1
        self._advance(part.end - part.start, segment.plan.name)
        if not segment.waiting and segment.difference is not None:
            self._link(segment, segment.difference)

    def _link(self, segment: _Segment, difference: Difference) -> None:
        try:
            sums = join(segment.parts, difference.reads)
            link(self._metadata, difference, self._place, sums, grows=self._grows)
        except TierfsError as exc:
            self._fail(segment, exc)
        else:
            self._end(segment, _state_of(difference), difference)

    def _end(self, segment: _Segment, state: State, difference: Difference | None = None) -> None:
        self._unanswered = 0
        changed = (difference.new_bytes, difference.removed_bytes) if difference else (0, 0)
        self._outcomes[segment.index] = AdoptionOutcome(segment.plan, state, None, None, *changed)
        self._advance(0, segment.plan.name, 1)

    def _fail(self, segment: _Segment, error: TierfsError) -> None:
        log.info("%s was not adopted: %s", printable(segment.plan.name), error)
        segment.error = error
        self._outcomes[segment.index] = AdoptionOutcome(segment.plan, State.FAILED, error)
        self._advance(0, segment.plan.name, 1)
        self._unanswered = self._unanswered + 1 if isinstance(error, Unavailable) else 0
        self._stop = self._stop or isinstance(error, OF_THE_STORE) or self._unanswered >= GIVE_UP_AFTER


# States of a dry run, by those of a run.
_FORESEEN = {
    State.ADOPTED: State.PLANNED,
    State.GROWN: State.WOULD_GROW,
    State.TRUNCATED: State.WOULD_BE_TRUNCATED,
    State.RELINKED: State.WOULD_BE_READ,
    State.TAKEN_BACK: State.WOULD_BE_READ,
}


def foresee(metadata: MetadataStore, plan: AnyPlan, place: LocationRecord) -> AdoptionOutcome:
    """Return what a run would do with a segment, as far as it is known without reading its objects."""
    try:
        with metadata.read() as txn:
            if isinstance(plan, LedgerPlan):
                plan = ledger_standing.linked_first(txn, plan)
                growth = growth_of(txn, plan, place)
                if growth is not None and not growth.nothing:
                    return AdoptionOutcome(plan, State.WOULD_GROW)
                if growth is not None:
                    return AdoptionOutcome(plan, State.ALREADY)
                state = STATES[ledger_standing.standing(txn, plan, place)]
                return AdoptionOutcome(plan, _FORESEEN.get(state, state))
            difference = compare(txn, plan, place, thorough=False)
    except TierfsError as exc:
        return AdoptionOutcome(plan, State.FAILED, exc)
    if difference.nothing:
        return AdoptionOutcome(plan, State.ALREADY)
    state = _FORESEEN[_state_of(difference)]
    return AdoptionOutcome(plan, state, None, None, difference.new_bytes, difference.removed_bytes)


def _state_of(difference: Difference) -> State:
    if difference.segment is None:
        return State.ADOPTED
    if difference.new_bytes:
        return State.GROWN
    if difference.removed_bytes:
        return State.TRUNCATED
    same = all(proof.name == read.extent.object.name for read in difference.reads for proof in read.proofs)
    return State.TAKEN_BACK if same else State.RELINKED


class LedgerAdoption:
    """One run over the ledgers of one place; used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        storage: ChunkStorage,
        place: LocationRecord,
        jobs: int,
        advance: Meter,
        *,
        cold: ColdTier | None = None,
        accept_loss: bool = False,
        magic: MagicWords | None = None,
    ) -> None:
        """Prepare a run. `accept_loss`: ledgers whose last entries are missing are adopted without them."""
        self._linker = LedgerLinker(metadata, place, cold)
        self._storage = storage
        self._jobs = jobs
        self._advance = advance
        self._accept_loss = accept_loss
        self._magic = magic
        self._unanswered = 0
        self._stop = False

    def run(self, plans: Sequence[LedgerPlan]) -> list[AdoptionOutcome]:
        """Adopt the ledgers; return the outcome of each, in the order of `plans`."""
        at_once = max(1, min(self._jobs, len(plans)))
        pieces = Pieces(self._storage, self._jobs, at_once)
        readers = tuple(
            LedgerReader(self._storage, pieces, self._advance, accept_loss=accepts, magic=self._magic)
            for accepts in ((False, True) if self._accept_loss else (False,))
        )
        outcomes: dict[int, AdoptionOutcome] = {}
        begun = takewhile(lambda _: not self._stop, enumerate(plans))
        with Pool(at_once, "tierfs-adopt") as pool, closing(pieces):
            for (index, plan), outcome in pool.as_completed(partial(self._adopt, readers), begun, ahead=at_once):
                outcomes[index] = outcome
                self._advance(0, plan.name, 1)
                self._note(outcome.error)
        return [outcomes.get(index) or AdoptionOutcome(plan, State.NOT_TRIED) for index, plan in enumerate(plans)]

    def _note(self, error: TierfsError | None) -> None:
        """Stop the run after an error that further ledgers would raise too."""
        self._unanswered = self._unanswered + 1 if isinstance(error, Unavailable) else 0
        self._stop = self._stop or isinstance(error, OF_THE_STORE) or self._unanswered >= GIVE_UP_AFTER

    def _adopt(self, readers: tuple[LedgerReader, ...], numbered: tuple[int, LedgerPlan]) -> AdoptionOutcome:
        """Adopt a ledger from the first attempt that is whole; loss is accepted if none is."""
        outcomes: list[AdoptionOutcome] = []
        try:
            attempts = self._linker.linked_first(numbered[1]).attempts
        except TierfsError as exc:
            return AdoptionOutcome(numbered[1], State.FAILED, exc)
        for reader in readers:
            for plan in attempts:
                outcome = self._try(reader, plan)
                if not isinstance(outcome.error, OF_AN_ATTEMPT) or isinstance(outcome.error, OF_THE_STORE):
                    return outcome
                outcomes.append(outcome)
        return outcomes[0]

    def _try(self, reader: LedgerReader, plan: LedgerPlan) -> AdoptionOutcome:
        try:
            growth = self._linker.growth(plan)
            if growth is not None:
                return self._grow(reader, plan, growth)
            before = self._linker.standing(plan)
            if before is Standing.ADOPTED:
                reader.skip(plan)
                return AdoptionOutcome(plan, State.ALREADY)
            if before is Standing.MOVED:
                new = self._linker.rows_of(self._linker.segment(plan))
                ledger = reader.read(plan, new.take)
                self._linker.relink(plan, ledger, new)
            else:
                with self._linker.rows(plan) as rows:
                    ledger = reader.read(plan, rows.take)
                    before = self._linker.link(plan, ledger, rows)
        except TierfsError as exc:
            log.info("%s was not adopted: %s", printable(plan.name), exc)
            return AdoptionOutcome(plan, State.FAILED, exc)
        return AdoptionOutcome(plan, STATES[before], ledger=_described(ledger))

    def _grow(self, reader: LedgerReader, plan: LedgerPlan, growth: LedgerGrowth) -> AdoptionOutcome:
        """Link what a ledger gained."""
        reader.skip(replace(plan, parts=growth.known))
        if growth.nothing:
            return AdoptionOutcome(plan, State.ALREADY)
        before, rows = growth.segment, self._linker.rows_of(growth.segment)
        ledger = reader.read(growth.plan, rows.take, before.length, growth.entries)
        self._linker.grow(growth, ledger, rows)
        new_bytes = ledger.payload_bytes - before.length
        return AdoptionOutcome(plan, State.GROWN, ledger=_described(ledger), new_bytes=new_bytes)


def _described(ledger: FoundLedger) -> FoundLedger:
    """Return a ledger's summary without its parts: checksums of large objects are megabytes."""
    return FoundLedger([], ledger.entries, ledger.payload_bytes, ledger.lost_entries, ledger.deviations)
