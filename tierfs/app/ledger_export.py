"""Export ledgers: Pulsar's two objects of each as files of a directory. Part of the composition root.

A ledger with objects is copied from them byte for byte, all others are encoded; the same ledger, exported in the same
way, always gets the same names. Files appear as a whole and replace nothing. The index is written last: without it a
ledger was not exported.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid5

from tierfs.app.export_files import write_new
from tierfs.app.store import Store
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter
from tierfs.base.system import osio
from tierfs.base.words import names
from tierfs.base.words.errors import Unavailable
from tierfs.base.words.types import ByteRange, Tier
from tierfs.engine.chunkstore.place import provider_of
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.ledger import keys as object_keys
from tierfs.engine.ledger import transforms, unbatch
from tierfs.engine.ledger.blocks import encode_blocks, plan_blocks
from tierfs.engine.ledger.index import LedgerIndex
from tierfs.engine.ledger.index_codec import encode_index
from tierfs.engine.ledger.keys import Role
from tierfs.engine.ledger.single_object import MagicWords, plan_object
from tierfs.engine.ledger.transforms import Transform
from tierfs.engine.metadata import chains, directories, empty_ledgers, entries, policies
from tierfs.engine.metadata.ledger_records import LedgerRecord
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord
from tierfs.engine.segments.ledgers import require_below
from tierfs.reading.entries import payloads as payloads_of
from tierfs.reading.entries import stored_runs
from tierfs.reading.ledger_objects import METADATA_SUFFIX, Pieces, metadata_beside
from tierfs.reading.stream import Write, copy_segment
from tierfs.tiering.ledgers import copies
from tierfs.tiering.ledgers.source import LedgerSource

_JOBS = 8


@dataclass(frozen=True, slots=True)
class LedgerExport:
    """Options of an export. The default copies cold ledgers."""

    block_bytes: int | None = None
    magic: MagicWords | None = None
    """Of the first PIP's form, one object per ledger."""
    transform: Transform | None = None
    """Applied to each entry."""
    by_policy: bool = True
    """Whether a ledger without it gets that of its policy."""

    @property
    def copies(self) -> bool:
        """Whether objects that are there are exported as they are."""
        return self.block_bytes is None and self.magic is None and self.transform is None


@dataclass(frozen=True, slots=True)
class Exported:
    """The result for one ledger."""

    segment: str
    entries: int
    keys: tuple[str, ...]
    bytes: int
    """Of its data objects."""
    new: bool
    copied: bool
    why_not: str = ""
    """The reason it was not exported."""


class _FromTiers:
    """A segment's bytes as a Source, from any tier that has them."""

    def __init__(self, store: Store, name: str, length_bytes: int, advance: Meter) -> None:
        self._store = store
        self._name = name
        self.length_bytes = length_bytes
        self._advance = advance

    def read(self, offset: int, length_bytes: int) -> Buffer:
        buffer = bytearray()
        _copy(self._store, self._name, offset, offset + length_bytes, buffer.extend)
        self._advance(length_bytes, self._name)
        return buffer


class Exporter:
    """Exports ledgers of one store into one directory."""

    def __init__(self, store: Store, directory: Path, options: LedgerExport, advance: Meter) -> None:
        self._store = store
        self._directory = directory
        self._options = options
        self._advance = advance

    def find(self, path: str) -> list[tuple[str, SegmentRecord]]:
        """Return the ledgers at or below a path. Raises NotFound, InvalidRequest where there is none."""
        with self._store.metadata.read() as txn:
            return require_below(txn, path)

    def export(self, ledgers: Iterable[tuple[str, SegmentRecord]]) -> Iterator[Exported]:
        """Write the ledgers' files.

        Raises AlreadyExists for a file in the way, InvalidRequest for a transform of a policy that is not installed,
        and what cannot be read or written.
        """
        osio.make_directories(self._directory, osio.SHARED_DIRECTORY)
        for name, segment in ledgers:
            yield Exporter(self._store, self._directory, self._of(segment), self._advance)._export_ledger(name, segment)

    def _of(self, segment: SegmentRecord) -> LedgerExport:
        """Return the options for one ledger."""
        if self._options.transform is not None or not self._options.by_policy:
            return self._options
        with self._store.metadata.read() as txn:
            name = policies.effective(txn, segment).transform
        return self._options if name is None else replace(self._options, transform=transforms.named(name))

    def _export_ledger(self, name: str, segment: SegmentRecord) -> Exported:
        with self._store.metadata.read() as txn:
            ledger = replace(entries.find(txn, segment.id), entries=entries.count(txn, segment.id))
            records = [chains.object_of(txn, chunk) for chunk in chains.chunks(txn, segment.id, Tier.COLD)]
            empty = None if records else empty_ledgers.find(txn, ledger)
            records = records if empty is None else [empty]
        if not segment.sealed:
            return Exported(name, ledger.entries, (), 0, new=False, copied=False, why_not="it is open")
        if records and self._options.copies:
            return self._copy(name, ledger, records)
        return self._encode(name, segment, ledger)

    def _copy(self, name: str, ledger: LedgerRecord, records: list[ObjectRecord]) -> Exported:
        """Write the objects as they lie, data before index."""
        keys, size, new = [], 0, False
        for record in records:
            for object_name, is_data in ((record.name, True), (record.index_name, False)):
                if object_name:
                    stored, written = self._copy_object(name, record, object_name, is_data=is_data)
                    size, new = size + (stored.length_bytes if is_data else 0), new or written
                    keys.append(_key(object_name))
        return Exported(name, ledger.entries, tuple(keys), size, new, copied=True)

    def _copy_object(
        self, name: str, record: ObjectRecord, object_name: str, *, is_data: bool
    ) -> tuple[StoredObject, bool]:
        storage = self._store.storage_of(record.location_id)
        stored = storage.stat(object_name)
        if is_data and stored.length_bytes != record.stored_bytes:
            raise Unavailable(
                f"{names.printable(object_name)} is no longer the object of {name}", remedy="tierfs check"
            )
        metadata: Mapping[str, str] | None = stored.metadata
        with self._store.metadata.read() as txn:
            place = policies.location(txn, record.location_id)
        if not place.writable and provider_of(place.url).in_files(place.url):
            metadata = metadata_beside(storage, object_name)
        if metadata is not None:
            self._write_metadata(_key(object_name), metadata)
        pieces = Pieces(storage, _JOBS)
        try:
            content = self._told(pieces.of(stored, ByteRange(0, stored.length_bytes)), name if is_data else "")
            return stored, write_new(self._directory / _key(object_name), content)
        finally:
            pieces.close()

    def _encode(self, name: str, segment: SegmentRecord, ledger: LedgerRecord) -> Exported:
        """Encode new objects."""
        lengths = array("I")
        if self._options.transform is not None:
            lengths.extend(len(payload) for payload in self._entries(name, segment, ledger.entries))
        else:
            for run in stored_runs(self._store.metadata, segment.id):
                lengths.extend(run.lengths)
        described = copies.description(replace(ledger, entries=len(lengths), bytes=sum(lengths)), segment)
        block_bytes = self._options.block_bytes or self._store.settings.offload.ledger_block_bytes
        payloads = enumerate(self._entries(name, segment, ledger.entries, tell=True))
        uuid = self._uuid(segment, block_bytes)
        data_key = object_keys.data_key(uuid, ledger.ledger_id)
        if self._options.magic is not None:
            plan = plan_object(described, lengths, block_bytes, self._options.magic)
            size = plan.index.length_bytes + sum(block.length_bytes for block in plan.blocks)
            new = self._write(name, data_key, Role.DATA, plan.encode(payloads))
            return Exported(name, len(lengths), (data_key,), size, new, copied=False)
        plans = plan_blocks(lengths, block_bytes)
        index = LedgerIndex.of_plans(described, plans)
        index_key = object_keys.index_key(uuid, ledger.ledger_id)
        if self._options.transform is not None:
            blocks: Iterator[Buffer] = encode_blocks(payloads, plans)
        else:
            source = LedgerSource(_FromTiers(self._store, name, segment.length, self._advance), lengths, plans)
            blocks = (source.read(block.offset, block.length_bytes) for block in plans)
        new = self._write(name, data_key, Role.DATA, blocks)
        new = self._write(name, index_key, Role.INDEX, [encode_index(index)]) or new
        return Exported(name, len(lengths), (data_key, index_key), index.data_object_length, new, copied=False)

    def _uuid(self, segment: SegmentRecord, block_bytes: int) -> UUID:
        """Return the same for the same ledger and way of exporting it: a second export finds the first one's files."""
        magic = self._options.magic
        words = "" if magic is None else f"{magic.index.hex()}:{magic.block.hex()}"
        transform = self._options.transform
        # True is unbatch, which was the only one: an export of an earlier version is found again.
        name = transform.name if transform is not None and transform.name != unbatch.NAME else transform is not None
        way = f"{segment.id}/{block_bytes}/{words}/{name}"
        return uuid5(UUID(self._store.metadata.store_id), way)

    def _write(self, name: str, key: str, role: Role, pieces: Iterable[Buffer]) -> bool:
        transform = self._options.transform
        transformed = {} if transform is None else {object_keys.TRANSFORM_KEY: transform.name}
        metadata = object_keys.tierfs_metadata(role, name, transformed)
        self._write_metadata(key, metadata)
        return write_new(self._directory / key, pieces)

    def _write_metadata(self, key: str, metadata: Mapping[str, str]) -> None:
        text = json.dumps(dict(metadata), sort_keys=True)
        write_new(self._directory / f"{key}{METADATA_SUFFIX}", [text.encode() + b"\n"])

    def _entries(self, name: str, segment: SegmentRecord, count: int, *, tell: bool = False) -> Iterator[bytes]:
        """Yield the payloads as they are to be written, some MiB in memory."""
        entries_read = self._told_entries(name, segment, count) if tell else self._read(name, segment, count)
        transform = self._options.transform
        yield from entries_read if transform is None else transform.entries(entries_read)

    def _told_entries(self, name: str, segment: SegmentRecord, count: int) -> Iterator[bytes]:
        for payload in self._read(name, segment, count):
            self._advance(len(payload), name)
            yield payload

    def _read(self, name: str, segment: SegmentRecord, count: int) -> Iterator[bytes]:
        def read(wanted: ByteRange) -> Buffer:
            buffer = bytearray()
            _copy(self._store, name, wanted.start, wanted.end, buffer.extend)
            return buffer

        return payloads_of(self._store.metadata, segment.id, 0, count, read)

    def _told(self, pieces: Iterator[memoryview], name: str) -> Iterator[memoryview]:
        for piece in pieces:
            if name:
                self._advance(len(piece), name)
            yield piece


def _copy(store: Store, name: str, start: int, end: int, write: Write) -> None:
    """Write bytes of a segment, from any tier that has them."""
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
    copy_segment(store.reader(), segment, start, end, None, write)


def _key(object_name: str) -> str:
    """Return Pulsar's key, without any prefix."""
    return object_name.rpartition("/")[2]
