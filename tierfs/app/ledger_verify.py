"""Verify ledgers: the two objects of each, ours or adopted, against each other and against the store's rows.

`tierfs check /` reads payloads as every reader does, by the rows of entries; here the objects are read as Pulsar reads
them, by their index. Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from tierfs.app.ledger_rows import StoredRows
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import Conflict, DataLoss, NotFound, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import CRC_BLOCK_BYTES, ObjectId, Tier
from tierfs.base.words.units import numbered
from tierfs.engine.chunkstore.place import provider_of
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.ledger import keys as object_keys
from tierfs.engine.ledger.deviations import Deviations
from tierfs.engine.ledger.index import FIRST_PART_ID, LedgerIndex
from tierfs.engine.ledger.single_object import MagicWords
from tierfs.engine.metadata import chains, checksums, empty_ledgers, entries, policies
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord
from tierfs.engine.segments.ledgers import require_below
from tierfs.reading import ledger_objects
from tierfs.reading.ledger_objects import Pieces
from tierfs.tiering.adoption.ledger_read import FoundLedger, FoundPart, LedgerReader
from tierfs.tiering.adoption.plan import LedgerPart, LedgerPlan

_JOBS = 8
_NO_ATTEMPT = UUID(int=0)


@dataclass(slots=True)
class VerifiedLedger:
    """The result of verifying one ledger."""

    name: str
    entries: int
    length: int
    objects: list[str] = field(default_factory=list)
    """Empty: it is not offloaded, or has no bytes."""
    warnings: Deviations = field(default_factory=Deviations)
    error: TierfsError | None = None


@dataclass(frozen=True, slots=True)
class _Cold:
    """The cold form of one ledger."""

    plan: LedgerPlan
    records: tuple[ObjectRecord, ...]
    storage: ChunkStorage
    magic: MagicWords | None


class LedgerVerifier:
    """Verifies ledgers of one store, one after the other, reading ahead."""

    def __init__(self, store: Store, advance: Meter) -> None:
        self._store = store
        self._advance = advance

    def find(self, path: str) -> list[tuple[str, SegmentRecord]]:
        """Return the ledgers at or below a path. Raises NotFound, InvalidRequest where there is none."""
        with self._store.metadata.read() as txn:
            return require_below(txn, path)

    def run(self, ledgers: Iterable[tuple[str, SegmentRecord]]) -> Iterator[VerifiedLedger]:
        """Verify each. Raises Unavailable when its place does not answer."""
        for name, segment in ledgers:
            result = self._result(name, segment)
            if isinstance(result.error, DataLoss):
                result = self._result(name, segment)  # a transfer damages bytes once, an object each time
            yield result

    def _result(self, name: str, segment: SegmentRecord) -> VerifiedLedger:
        result = VerifiedLedger(name, 0, segment.length)
        try:
            with self._store.metadata.read() as txn:
                result.entries = entries.count(txn, segment.id)
                records = tuple(chains.object_of(txn, chunk) for chunk in chains.chunks(txn, segment.id, Tier.COLD))
                empty = None if records else empty_ledgers.find(txn, entries.find(txn, segment.id))
                records = records if empty is None else (empty,)
            self._verify(segment, records, result)
        except (DataLoss, NotFound, Conflict) as exc:
            result.error = exc
        return result

    def _verify(self, segment: SegmentRecord, records: tuple[ObjectRecord, ...], result: VerifiedLedger) -> None:
        """Verify one. Raises DataLoss for damage, NotFound for a missing object, Conflict for one that changes."""
        if not records:
            return
        result.objects = [name for record in records for name in (record.name, record.index_name) if name]
        cold = self._cold(segment, records, result)
        rows = StoredRows(self._store.metadata, segment.id, records[0].encoding.frame_bytes)
        pieces = Pieces(cold.storage, _JOBS)
        reader = LedgerReader(
            cold.storage, pieces, self._advance, accept_loss=True, magic=cold.magic, bridge=rows.are_empty
        )
        try:
            ledger = reader.read(cold.plan, rows.compare)
        finally:
            pieces.close()
        _add_all(result.warnings, ledger.deviations)
        self._compare(cold, ledger, rows, result)

    def _cold(self, segment: SegmentRecord, records: tuple[ObjectRecord, ...], result: VerifiedLedger) -> _Cold:
        """Plan the reads, after a look at what the objects and their indexes say of themselves."""
        storage = self._store.storage_of(records[0].location_id)
        with self._store.metadata.read() as txn:
            ledger = entries.find(txn, segment.id)
            place = policies.location(txn, records[0].location_id)
        in_files = not place.writable and provider_of(place.url).in_files(place.url)
        parts: list[LedgerPart] = []
        expected: list[int] = []
        magic = None
        for record in records:
            data = storage.stat(record.name)
            index = storage.stat(record.index_name) if record.index_name else None
            _check_objects(storage, record, data, index, in_files=in_files, warnings=result.warnings)
            first, count = 0, None
            if index is None:
                magic = ledger_objects.magic_words_of(storage, data)
                layout = ledger_objects.first_form_layout(storage, data, magic, Deviations())
                count = layout.entries if layout else None
            else:
                first, count = _first_and_count(storage, index, ledger.ledger_id, segment.length, result.warnings)
            expected += [] if count is None else [count]
            uuid = ledger.offload.uuid or _NO_ATTEMPT
            parts.append(LedgerPart(data, index, uuid, first, data.length_bytes))
        plan = LedgerPlan(
            result.name, ledger.ledger_id, tuple(parts), max(expected, default=None), payload_bytes=segment.length
        )
        return _Cold(plan, records, storage, magic)

    def _compare(self, cold: _Cold, ledger: FoundLedger, rows: StoredRows, result: VerifiedLedger) -> None:
        """Compare the entries with the store's own records. Raises DataLoss."""
        name = printable(result.name)
        rest = rows.rest()
        # Objects of the streaming form without a byte are not kept.
        if rest and not (_is_streaming(cold) and rows.are_empty(rows.entries, rows.entries + rest)):
            missing = numbered("entry", rows.entries, result.entries, "are")
            raise DataLoss(f"{name}: {missing} not in its object")
        if ledger.payload_bytes != result.length:
            raise DataLoss(f"{name}: its entries have {ledger.payload_bytes} bytes, its segment {result.length}")
        for record, part in zip(cold.records, ledger.parts, strict=True):
            self._compare_bytes(record, part)
        if (cold.plan.entries or 0) > result.entries:
            lost = numbered("entry", result.entries, cold.plan.entries or 0, "were")
            warnings = Deviations()  # the most important one first
            warnings.add(f"{lost} lost when its object was written")
            _add_all(warnings, result.warnings)
            result.warnings = warnings

    def _compare_bytes(self, record: ObjectRecord, part: FoundPart) -> None:
        if (record.payload_start, record.length) != (part.payload_start, part.length):
            raise DataLoss(
                f"{printable(record.name)} has {part.length} bytes of payload, its record says {record.length}"
            )
        if record.crc32c in (None, part.crc32c):
            return
        with self._store.metadata.read() as txn:
            stored = [run.crc(index) for run in checksums.runs(txn, ObjectId(record.id)) for index in range(run.count)]
        bad = [index for index, (crc, other) in enumerate(zip(stored, part.grid, strict=False)) if crc != other]
        at = record.payload_start + (bad[0] if bad else 0) * CRC_BLOCK_BYTES
        blocks = f"{len(bad)} blocks of {CRC_BLOCK_BYTES >> 10} KiB differ, the first at byte {at} of the ledger"
        raise DataLoss(f"{printable(record.name)}: its payload has changed: {blocks}")


def _is_streaming(cold: _Cold) -> bool:
    return all(part.index is not None and "-ledger-" not in part.data.name for part in cold.plan.parts)


def _check_objects(
    storage: ChunkStorage,
    record: ObjectRecord,
    data: StoredObject,
    index: StoredObject | None,
    *,
    in_files: bool,
    warnings: Deviations,
) -> None:
    """Check sizes, etags and format versions. Raises DataLoss."""
    if data.length_bytes != record.stored_bytes:
        what = f"{printable(data.name)} has {data.length_bytes} bytes"
        raise DataLoss(f"{what}, its record says {record.stored_bytes}")
    if record.etag and data.etag != record.etag:
        warnings.add(f"{printable(data.name)} was copied or rewritten: its ETag has changed")
    for stored in (data, index):
        if stored is None:
            continue
        metadata = ledger_objects.metadata_beside(storage, stored.name) if in_files else stored.metadata
        if metadata is None:
            warnings.add(
                f"{printable(stored.name)}: its format version is unknown, because its metadata file is missing"
            )
        else:
            object_keys.check_version(metadata, stored.name)


def _first_and_count(
    storage: ChunkStorage, index: StoredObject, ledger_id: int, length: int, warnings: Deviations
) -> tuple[int, int | None]:
    """Return the first entry that an index tells of, and the ledger's number of entries by it. Raises DataLoss."""
    decoded = ledger_objects.read_index(storage, index, Deviations())
    name = printable(index.name)
    if not isinstance(decoded, LedgerIndex):
        section = decoded.section(ledger_id)
        return section.entries[0].first_entry_id if section.entries else 0, section.info.entries or None
    if [entry.part_id for entry in decoded.entries] != [*range(FIRST_PART_ID, FIRST_PART_ID + len(decoded.entries))]:
        warnings.add(f"{name}: the numbers of its parts do not start at {FIRST_PART_ID}")
    if decoded.metadata.length != length:
        warnings.add(f"{name}: the ledger has {decoded.metadata.length} bytes by its index, {length} in the store")
    return 0, decoded.metadata.readable_last_entry_id + 1


def _add_all(warnings: Deviations, added: Deviations) -> None:
    for message in added.messages:
        warnings.add(message)
    warnings.count += added.count - len(added.messages)
