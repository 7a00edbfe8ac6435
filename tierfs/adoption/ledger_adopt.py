"""Adopting planned ledgers: several at once, each read ahead, and each made as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tierfs.adoption.adopt import GIVE_UP_AFTER, OF_THE_STORE, STATES, Advance, Outcome, State
from tierfs.adoption.ledger_link import LedgerLinker
from tierfs.adoption.ledger_read import FoundLedger, LedgerReader
from tierfs.adoption.link import Standing
from tierfs.adoption.plan import LedgerPlan
from tierfs.background.cold import ColdTier
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import TierfsError, Unavailable
from tierfs.ledger.single_object import MagicWords
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.reading.ledger_objects import Pieces

log = logging.getLogger(__name__)


class LedgerAdoption:
    """One run over the ledgers of one place; used once."""

    def __init__(
        self,
        metadata: MetadataStore,
        storage: ChunkStorage,
        place: LocationRecord,
        jobs: int,
        advance: Advance,
        *,
        cold: ColdTier | None = None,
        accept_loss: bool = False,
        magic: MagicWords | None = None,
    ) -> None:
        """`accept_loss`: ledgers whose last entries are missing are adopted without them."""
        self._linker = LedgerLinker(metadata, place, cold)
        self._storage = storage
        self._jobs = jobs
        self._advance = advance
        self._accept_loss = accept_loss
        self._magic = magic
        self._running: dict[Future[Outcome], int] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._unanswered = 0
        self._stop = False

    def run(self, plans: Sequence[LedgerPlan]) -> list[Outcome]:
        """Adopt the ledgers; returns what became of each, in the order of `plans`."""
        at_once = max(1, min(self._jobs, len(plans)))
        pieces = Pieces(self._storage, self._jobs, at_once)
        reader = LedgerReader(self._storage, pieces, self._advance, accept_loss=self._accept_loss, magic=self._magic)
        pool = ThreadPoolExecutor(at_once, "tierfs-adopt")
        try:
            for index, plan in enumerate(plans):
                while len(self._running) >= at_once:
                    self._reap()
                if self._stop:
                    break
                self._running[pool.submit(self._adopt, plan, reader)] = index
            while self._running:
                self._reap()
        finally:
            pieces.close()
            pool.shutdown(cancel_futures=True)
        return [self._outcomes.get(index) or Outcome(plan, State.NOT_TRIED) for index, plan in enumerate(plans)]

    def _reap(self) -> None:
        finished, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in finished:
            outcome = self._outcomes[self._running.pop(future)] = future.result()
            error = outcome.error
            self._unanswered = self._unanswered + 1 if isinstance(error, Unavailable) else 0
            self._stop = self._stop or isinstance(error, OF_THE_STORE) or self._unanswered >= GIVE_UP_AFTER

    def _adopt(self, plan: LedgerPlan, reader: LedgerReader) -> Outcome:
        try:
            if self._linker.standing(plan) is Standing.ADOPTED:
                reader.skip(plan)
                return Outcome(plan, State.ALREADY)
            with self._linker.rows(plan) as rows:
                found = reader.read(plan, rows.take)
                before = self._linker.link(plan, found, rows)
        except TierfsError as exc:
            log.info("%s is not adopted: %s", printable(plan.name), exc)
            return Outcome(plan, State.FAILED, exc)
        return Outcome(plan, STATES[before], ledger=_described(found))


def _described(found: FoundLedger) -> FoundLedger:
    """Without what the commit took: checksums of large objects are megabytes."""
    return FoundLedger([], found.entries, found.payload_bytes, found.lost_entries, found.deviations)
