"""Read a planned ledger once, to locate each entry and make the checksums that every later read is checked against.

Recover the lost rows of a ledger's entries from its objects: from their copy, else by reading all of the data.

`rescan` needs no metadata, so that many ledgers can be read on many machines. The bytes read must match the records:
each object's payload has the length and the CRC32C that it had when it was linked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from uuid import UUID

from tierfs.base.bytes.checksum import Buffer, GridBuilder, twice
from tierfs.base.words import names
from tierfs.base.words.errors import Conflict, DataLoss, InvalidRequest, NotFound, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, LocationId, PayloadEncoding, SegmentId, Tier
from tierfs.base.words.units import numbered
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.chunkstore.sequential_read import ObjectFile
from tierfs.engine.ledger.block_reader import EntryMissing
from tierfs.engine.ledger.decoder_source import DecoderSource
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import StreamingIndex
from tierfs.engine.ledger.single_object import MagicWords
from tierfs.engine.metadata import chains, directories, entries, entries_object, tables
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LEDGERS, SEGMENTS
from tierfs.reading import ledger_objects
from tierfs.reading.entry_scan import EntryRuns, Take
from tierfs.reading.ledger_objects import LedgerLayout, Pieces, magic_words_of, read_index
from tierfs.tiering.adoption.plan import LedgerPart, LedgerPlan
from tierfs.tiering.ledgers.copies import first_missing

# Payload bytes that are collected before they are summed.
_SUMMED_AT_ONCE = MIB

_OVERFULL = "Pulsar writes the streaming form wrong where a block is more than full, and cannot read it either"

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
            assert self._magic is not None, "a plan of the first form is made with its magic words"
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
                raise source.damage(f"entry {batch.first_entry_id} lies where entry {runs.entries} is expected")
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


# Requests in parallel, 8 MiB each.
_JOBS = 4


@dataclass(frozen=True, slots=True)
class LostRows:
    """A ledger whose rows are missing. Picklable."""

    segment_id: SegmentId
    name: str
    entries: int | None
    """None of one that grows."""
    length_bytes: int
    records: tuple[ObjectRecord, ...]
    own_location: LocationId
    """Location of the copies of rows."""

    @property
    def object_bytes(self) -> int:
        """Bytes to read, at most."""
        return sum(record.stored_bytes for record in self.records)


def lost_rows(metadata: MetadataStore) -> Iterator[LostRows]:
    """Yield the ledgers that cannot be read, as of one snapshot, without those that have no bytes."""
    with metadata.read() as txn:
        own = LocationId(txn.store.cold_location_id)
        for _, row in txn.scan(LEDGERS):
            segment = txn.get(SEGMENTS, tables.u64(SegmentId(row.segment_id)))
            if segment is None or first_missing(txn, segment) is None:
                continue
            chunks = chains.chunks(txn, segment.id, Tier.COLD)
            whole = {chunk.object_id: chains.object_of(txn, chunk) for chunk in chunks if chunk.object_id}
            records = tuple(replace(record, stored=b"") for record in whole.values())
            if records:
                name = directories.path_of(txn, segment.parent_id, segment.name)
                count = entries.find(txn, segment.id).entries if segment.sealed else None
                yield LostRows(segment.id, name, count, segment.length, records, own)


def rescan(
    lost: LostRows,
    storage_of: Callable[[LocationId], ChunkStorage],
    advance: Callable[[int, str], None],
) -> tuple[EntryRun, ...]:
    """Return all rows of a ledger. Raises DataLoss if its objects changed since the link, and storage errors."""
    with suppress(NotFound, DataLoss):
        return _checked(lost, tuple(_copied(lost, storage_of(lost.own_location))))
    return twice(lambda: _scanned(lost, storage_of(lost.records[0].location_id), advance))


def _scanned(lost: LostRows, storage: ChunkStorage, advance: Callable[[int, str], None]) -> tuple[EntryRun, ...]:
    """Return the rows by reading the ledger's objects. Raises as `rescan`."""
    rows: list[EntryRun] = []
    read = _read(lost, storage, rows.append, advance)
    for record, part in zip(lost.records, read.parts, strict=True):
        if (part.payload_start, part.length, part.crc32c) != (record.payload_start, record.length, record.crc32c):
            raise DataLoss(
                f"{names.printable(record.name)}: its entries are not those that were adopted", remedy="adopt it again"
            )
    return _checked(lost, tuple(rows))


def _copied(lost: LostRows, storage: ChunkStorage) -> Iterator[EntryRun]:
    """Yield the rows in copies; one copy may cover several objects."""
    for name in dict.fromkeys(record.entries_name for record in lost.records):
        if not name:
            raise NotFound(f"there is no copy of the entries of {names.printable(lost.name)}")
        file = ObjectFile(storage, storage.stat(name))
        yield from entries_object.decode(file, name, lost.segment_id)


def _read(
    lost: LostRows,
    storage: ChunkStorage,
    take: Callable[[EntryRun], None],
    advance: Callable[[int, str], None],
) -> FoundLedger:
    ledger_id = names.ledger_id(lost.name.rpartition("/")[2])
    if ledger_id is None:
        raise DataLoss(f"{names.printable(lost.name)} has no number in its name", remedy="rename it back")
    parts = tuple(_part(storage, record, ledger_id) for record in lost.records)
    plan = LedgerPlan(lost.name, ledger_id, parts, lost.entries, lost.length_bytes)
    first = lost.records[0]
    magic = magic_words_of(storage, parts[0].data) if first.encoding is PayloadEncoding.FIRST_BLOCK else None
    with closing(Pieces(storage, _JOBS)) as pieces:
        # Entries in no object have no bytes: with one they would be missed in the sums.
        reader = LedgerReader(storage, pieces, advance, magic=magic, bridge=lambda _, __: True)
        return reader.read(plan, take)


def _part(storage: ChunkStorage, record: ObjectRecord, ledger_id: int) -> LedgerPart:
    data, index, first = storage.stat(record.name), None, 0
    if record.index_name:
        index = storage.stat(record.index_name)
        decoded = read_index(storage, index, Deviations())
        if isinstance(decoded, StreamingIndex):
            first = decoded.section(ledger_id).entries[0].first_entry_id
    return LedgerPart(data, index, UUID(int=0), first, data.length_bytes)


def _checked(lost: LostRows, runs: tuple[EntryRun, ...]) -> tuple[EntryRun, ...]:
    """Return the rows, if they follow each other from the first entry to the end of the ledger; else raise DataLoss."""
    entry_id = offset = 0
    for run in runs:
        if run.payload_start != offset or run.first_entry_id < entry_id:
            raise DataLoss(f"{names.printable(lost.name)}: its entries do not follow each other at byte {offset}")
        entry_id, offset = run.end_entry_id, run.payload_end
    if offset < lost.length_bytes:
        raise DataLoss(f"{names.printable(lost.name)}: its entries end at byte {offset} of {lost.length_bytes}")
    return runs


def told(error: TierfsError) -> str:
    """Return an error and its remedy in one line."""
    return f"{error}; {error.remedy}" if error.remedy else str(error)
