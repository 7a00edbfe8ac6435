"""Read a planned ledger once, to locate each entry and make the checksums that every later read is checked against."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from tierfs.base.bytes.checksum import Buffer, GridBuilder
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, PayloadEncoding
from tierfs.base.words.units import numbered
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.ledger.block_reader import EntryMissing
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import StreamingIndex
from tierfs.engine.ledger.single_object import MagicWords
from tierfs.reading import ledger_objects
from tierfs.reading.entry_scan import EntryRuns, Take
from tierfs.reading.ledger_objects import LedgerLayout, Pieces
from tierfs.tiering.adoption.plan import LedgerPart, LedgerPlan

# Payload bytes that are collected before they are summed.
_SUMMED_AT_ONCE = MIB

_OVERFULL = "Pulsar writes a wrong streaming form when a block overflows, and cannot read it"

# Takes the first entry and the one after the last.
Bridge = Callable[[int, int], bool]


class PayloadSums:
    """The checksums of bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._grid = GridBuilder()

    def add(self, data: Buffer) -> None:
        """Take the next bytes."""
        self._begun += data
        if len(self._begun) >= _SUMMED_AT_ONCE:
            self._sum_up()

    def finish(self) -> GridBuilder:
        """Return the checksums of all bytes."""
        self._sum_up()
        return self._grid

    def _sum_up(self) -> None:
        self._grid.feed(self._begun)
        self._begun = bytearray()


@dataclass(frozen=True, slots=True)
class FoundPart:
    """The content of one object of a ledger."""

    part: LedgerPart
    encoding: PayloadEncoding
    payload_start: int
    """Offset of its first payload byte in the ledger."""
    length: int
    crc32c: int
    grid: Sequence[int]


@dataclass(slots=True)
class FoundLedger:
    """The content of a ledger's objects."""

    parts: list[FoundPart] = field(default_factory=list)
    entries: int = 0
    payload_bytes: int = 0
    lost_entries: int = 0
    """Entries missing at the end, by the index."""
    deviations: Deviations = field(default_factory=Deviations)


class LedgerReader:
    """Reader of ledgers. Thread-safe; each thread reads one ledger at a time."""

    def __init__(
        self,
        storage: ChunkStorage,
        pieces: Pieces,
        advance: Callable[[int, str], None],
        *,
        accept_loss: bool = False,
        magic: MagicWords | None = None,
        bridge: Bridge | None = None,
    ) -> None:
        """Prepare for reads. `bridge` decides whether entries that are in none of the objects are empty ones."""
        self._bridge = bridge
        self._storage = storage
        self._pieces = pieces
        self._advance = advance
        self._accept_loss = accept_loss
        self._magic = magic
        self._lock = threading.Lock()

    def read(self, plan: LedgerPlan, take: Take, payload_start: int = 0, first_entry_id: int = 0) -> FoundLedger:
        """Read the objects of a plan, and pass their rows of entries to `take` in order.

        They begin with `first_entry_id`, whose payload is at `payload_start` of the ledger.

        Raises DataLoss for damage, and for entries that are missing at the end unless that was accepted; Conflict
        for an object that changed; storage errors.
        """
        ledger = FoundLedger()
        runs = EntryRuns(take, payload_start, first_entry_id)
        for part, following in zip_longest(plan.parts, plan.parts[1:]):
            end = plan.entries if following is None else following.first_entry_id
            layout = self._layout(plan, part, end, ledger.deviations)
            if part.first_entry_id > runs.entries and self._bridge and self._bridge(runs.entries, part.first_entry_id):
                runs.skip_empty(part.first_entry_id)
            if part.first_entry_id != runs.entries:
                missing = numbered("entry", runs.entries, part.first_entry_id, "are")
                raise DataLoss(f"{printable(plan.name)}: {missing} in none of its objects")
            ledger.parts.append(self._read_part(plan, part, layout, runs, ledger.deviations, last=following is None))
        ledger.entries, ledger.payload_bytes = runs.entries, runs.payload_bytes
        ledger.lost_entries = max(0, (plan.entries or 0) - runs.entries)
        if ledger.lost_entries and not self._accept_loss:
            raise _lost(plan, ledger)
        return ledger

    def skip(self, plan: LedgerPlan) -> None:
        """Report a ledger as read that need not be read."""
        self._report(plan.object_bytes, plan.name)

    def _report(self, size_bytes: int, name: str) -> None:
        with self._lock:
            self._advance(size_bytes, name)

    def _layout(self, plan: LedgerPlan, part: LedgerPart, end: int | None, deviations: Deviations) -> LedgerLayout:
        if part.index is None:
            assert self._magic is not None, "a plan of the first form needs its magic words"
            layout = ledger_objects.first_form_layout(self._storage, part.data, self._magic, deviations)
            if layout is None:
                raise _changed(part.data)
            return layout
        index = ledger_objects.read_index(self._storage, part.index, deviations)
        if isinstance(index, StreamingIndex):
            return ledger_objects.streaming_layout(index, plan.ledger_id, part.data, end)
        return ledger_objects.layout(index, part.data, deviations)

    def _read_part(
        self,
        plan: LedgerPlan,
        part: LedgerPart,
        layout: LedgerLayout,
        runs: EntryRuns,
        deviations: Deviations,
        *,
        last: bool,
    ) -> FoundPart:
        start, sums = runs.payload_bytes, PayloadSums()
        try:
            self._read_entries(plan, part, layout, runs, sums, deviations)
        except EntryMissing:
            # Pulsar loses only the tail: a loss before later blocks is other damage.
            if not (last and (not layout.blocks or runs.entries >= layout.blocks[-1].first_entry_id)):
                raise
        except DataLoss as exc:
            self._require_unchanged(part)
            if layout.streaming and exc.remedy is None:
                raise DataLoss(str(exc), remedy=_OVERFULL) from exc
            raise
        self._require_unchanged(part)
        runs.cut()
        grid = sums.finish()
        return FoundPart(part, layout.encoding, start, grid.length_bytes, grid.crc32c, grid.grid())

    def _read_entries(
        self,
        plan: LedgerPlan,
        part: LedgerPart,
        layout: LedgerLayout,
        runs: EntryRuns,
        sums: PayloadSums,
        deviations: Deviations,
    ) -> None:
        source = DecoderSource(self._reported(plan, part, layout), layout.range.start, part.data.name)
        frame_bytes = layout.encoding.frame_bytes
        for batch in ledger_objects.batches(source, layout, deviations):
            if batch.first_entry_id != runs.entries:
                raise source.damage(f"found entry {batch.first_entry_id} where entry {runs.entries} is expected")
            if batch.offset <= 0:
                raise source.damage("its first block has no header")
            if batch.payload is not None:
                sums.add(batch.payload)
            else:
                for piece in source.pieces_to(source.position + batch.lengths[0]):
                    sums.add(piece)
            runs.add(batch, frame_bytes)

    def _reported(self, plan: LedgerPlan, part: LedgerPart, layout: LedgerLayout) -> Iterator[memoryview]:
        """Yield the pieces of a part and report the progress of each."""
        unreported = part.read_bytes
        for piece in self._pieces.of(part.data, layout.range):
            size = min(unreported, len(piece))
            unreported -= size
            self._report(size, plan.name)
            yield piece

    def _require_unchanged(self, part: LedgerPart) -> None:
        """Raise Conflict if an object changed since the listing: servers may ignore If-Match."""
        for listed in (part.data, part.index):
            if listed is None:
                continue
            stored = self._storage.stat(listed.name)
            if (stored.etag, stored.length_bytes) != (listed.etag, listed.length_bytes):
                raise _changed(listed)


def _lost(plan: LedgerPlan, ledger: FoundLedger) -> DataLoss:
    every = ledger.entries + ledger.lost_entries
    return DataLoss(
        f"{printable(plan.name)}: {ledger.lost_entries} of {every} entries are not in its object, from entry "
        f"{ledger.entries} on",
        remedy="to adopt the other entries: --accept-loss",
    )


def _changed(listed: StoredObject) -> Conflict:
    why = "it changed while it was read"
    return Conflict(f"{printable(listed.name)}: {why}", remedy="adopt it when it is no longer written to")


def magic_words(text: str | None) -> MagicWords | None:
    """Parse the magic words of the first PIP's form from INDEX_HEX:BLOCK_HEX. Raises InvalidRequest."""
    if text is None:
        return None
    index, _, block = text.partition(":")
    try:
        return MagicWords(bytes.fromhex(index), bytes.fromhex(block))
    except ValueError as exc:
        raise InvalidRequest(f"{printable(text)} is not two words of 8 hexadecimal digits: INDEX:BLOCK") from exc


def told(error: TierfsError) -> str:
    """Return an error and its remedy in one line."""
    return f"{error}; {error.remedy}" if error.remedy else str(error)
