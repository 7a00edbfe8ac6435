"""Recover the lost rows of a ledger's entries from its objects: from their copy, else by reading all of the data.

`rescan` needs no metadata, so that many ledgers can be read on many machines. The bytes read must match the records:
each object's payload has the length and the CRC32C that it had when it was linked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from uuid import UUID

from tierfs.base.bytes.checksum import twice
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import LocationId, PayloadEncoding, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.sequential_read import ObjectFile
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import StreamingIndex
from tierfs.engine.metadata import chains, directories, entries, entries_object, tables
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LEDGERS, SEGMENTS
from tierfs.reading.ledger_objects import Pieces, magic_words_of, read_index
from tierfs.tiering.adoption.ledger_read import FoundLedger, LedgerReader
from tierfs.tiering.adoption.plan import LedgerPart, LedgerPlan
from tierfs.tiering.ledgers.entry_rows import first_missing

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
                f"{names.printable(record.name)}: its entries differ from the adopted ones", remedy="adopt it again"
            )
    return _checked(lost, tuple(rows))


def _copied(lost: LostRows, storage: ChunkStorage) -> Iterator[EntryRun]:
    """Yield the rows in copies; one copy may cover several objects."""
    for name in dict.fromkeys(record.entries_name for record in lost.records):
        if not name:
            raise NotFound(f"no copy of the entries of {names.printable(lost.name)}")
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
            raise DataLoss(f"{names.printable(lost.name)}: its entries are not consecutive at byte {offset}")
        entry_id, offset = run.end_entry_id, run.payload_end
    if offset < lost.length_bytes:
        raise DataLoss(f"{names.printable(lost.name)}: its entries end at byte {offset} of {lost.length_bytes}")
    return runs
