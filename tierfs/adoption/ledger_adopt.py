"""Adopting planned ledgers: several at once, each read ahead, and each made as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import takewhile

from tierfs.adoption.adopt import GIVE_UP_AFTER, OF_THE_STORE, STATES, Outcome, State
from tierfs.adoption.ledger_link import LedgerLinker
from tierfs.adoption.ledger_read import FoundLedger, LedgerReader
from tierfs.adoption.link import Standing
from tierfs.adoption.plan import LedgerPlan
from tierfs.background.objects import ColdTier
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import TierfsError, Unavailable
from tierfs.ledger.single_object import MagicWords
from tierfs.metadata.records import LocationRecord
from tierfs.metadata.store import MetadataStore
from tierfs.names import printable
from tierfs.parallel import Meter, Pool
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
        advance: Meter,
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
        self._unanswered = 0
        self._stop = False

    def run(self, plans: Sequence[LedgerPlan]) -> list[Outcome]:
        """Adopt the ledgers; returns what became of each, in the order of `plans`."""
        at_once = max(1, min(self._jobs, len(plans)))
        pieces = Pieces(self._storage, self._jobs, at_once)
        reader = LedgerReader(self._storage, pieces, self._advance, accept_loss=self._accept_loss, magic=self._magic)
        outcomes: dict[int, Outcome] = {}
        begun = takewhile(lambda _: not self._stop, enumerate(plans))
        with Pool(at_once, "tierfs-adopt") as pool, closing(pieces):
            for (index, _), outcome in pool.as_completed(partial(self._adopt, reader), begun, ahead=at_once):
                outcomes[index] = outcome
                self._note(outcome.error)
        return [outcomes.get(index) or Outcome(plan, State.NOT_TRIED) for index, plan in enumerate(plans)]

    def _note(self, error: TierfsError | None) -> None:
        """Begin no further ledger after an error that it would meet too."""
        self._unanswered = self._unanswered + 1 if isinstance(error, Unavailable) else 0
        self._stop = self._stop or isinstance(error, OF_THE_STORE) or self._unanswered >= GIVE_UP_AFTER

    def _adopt(self, reader: LedgerReader, numbered: tuple[int, LedgerPlan]) -> Outcome:
        _, plan = numbered
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
