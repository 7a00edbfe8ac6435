"""Levels of a checkpoint: the state once, then the entries after it, in parts that later checkpoints refer to.

A checkpoint of a large store writes only the entries since the one before it. The state is written again once what a
replay reads outweighs the state by half, if entries, levels and state together then have at most three times the bytes
of the entries (design note 0068). A small state is written whole each time, in the form that older versions read.

A part that compression halves is stored twice: checkpoints refer to it for months, and one damaged object must not end
all of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain, takewhile

from tierfs.base.bytes import ranges
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, StoredObject
from tierfs.engine.chunkstore.validate import ATTEMPT_KEY
from tierfs.engine.journal import kept_entries, reader
from tierfs.engine.journal.names import checkpoint_name, entry_slot, level_part_name, part_name
from tierfs.engine.journal.reader import JournalListing
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.journal_state import CheckpointIntent
from tierfs.engine.metadata.records import RECORD_VERSION, StoreRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import CHECKSUMS, CHUNKS, DIRECTORIES, SEGMENTS
from tierfs.engine.metadata.transaction import ReadTransaction

# A state up to this size is written whole by each checkpoint: less than a thousand entries have. A guess.
SMALL_BYTES = MIB

# A part ends at this size, before compression: one more change or entry keeps it below its limit of 8 MiB.
PART_BYTES = 4 * MIB

# Levels of fewer bytes of entries are joined once they fill a part, so that a manifest lists hundreds, not thousands.
TAIL_BYTES = 2 * MIB

# Bytes of checkpoints for each byte of entries; with the entries themselves it is three times their bytes.
MOST_WRITTEN = 2

_COUNTED = (SEGMENTS, CHUNKS, CHECKSUMS, DIRECTORIES)

_OF_THE_SLOT = ("version", "store_id", "attempt")


@dataclass(frozen=True, slots=True)
class Base:
    """The newest checkpoint, and the slots after it that the next one adds."""

    manifest: pb.CheckpointManifest
    items: tuple[StoredObject, ...]

    @property
    def entry_bytes(self) -> int:
        """Bytes of the slots."""
        return sum(item.length_bytes for item in self.items)


def find_base(storage: ChunkStorage, store: StoreRecord, slot: int) -> Base | None:
    """Return the newest checkpoint if it has levels that are whole, and all slots up to `slot`; else None."""
    newest = store.journal.checkpoint_slot
    if not newest:
        return None
    listing = reader.list_journal(storage)
    item = listing.checkpoints.get(newest)
    try:
        manifest = None if item is None else reader.read_manifest(storage, item)
    except DataLoss:
        return None
    items = [listing.slots[number] for number in range(newest + 1, slot + 1) if number in listing.slots]
    if manifest is None or not manifest.levels or manifest.store_id != store.store_id or len(items) < slot - newest:
        return None
    return Base(manifest, tuple(items)) if _is_whole(listing, manifest) else None


def _is_whole(listing: JournalListing, manifest: pb.CheckpointManifest) -> bool:
    """Return whether every part, and each copy, is listed with its size."""
    for part in reader.parts_of(manifest):
        for name in part.names:
            item = listing.parts.get(name)
            if item is None or item.length_bytes != part.length_bytes:
                return False
    return True


def is_state_due(manifest: pb.CheckpointManifest, entry_bytes: int, rows: int) -> bool:
    """Return whether the state is to be written again, when slots of `entry_bytes` are added and it has so many rows.

    Its size follows from the rows: to encode ten million segments takes minutes.
    """
    state = manifest.levels[0]
    once_bytes = sum(state.part_bytes)
    replayed_bytes = sum(sum(level.part_bytes) for level in manifest.levels)
    grown = rows / max(1, manifest.state_rows)
    written_bytes = manifest.level_bytes + _stored_bytes(state) * grown
    is_outweighed = replayed_bytes >= 1.5 * once_bytes * grown
    return is_outweighed and written_bytes <= MOST_WRITTEN * (manifest.entry_bytes + entry_bytes)


def _stored_bytes(level: pb.CheckpointLevel) -> int:
    """Return the bytes of a level with its copies."""
    return sum(size * (1 + copied) for size, copied in zip(level.part_bytes, level.copied, strict=True))


class ListedLevels:
    """The levels that checkpoints list; all there are, while one of the checkpoints cannot be read."""

    def __init__(self, storage: ChunkStorage, slots: Iterable[int]) -> None:
        self._levels: set[tuple[int, str]] = set()
        self._is_known = True
        for slot in slots:
            try:
                manifest = reader.read_manifest(storage, storage.stat(checkpoint_name(slot)))
            except (DataLoss, NotFound):
                self._is_known = False
                return
            self._levels.update((level.slot, level.attempt) for level in manifest.levels)

    def __contains__(self, level: object) -> bool:
        """Return whether a slot and an attempt are those of such a level."""
        return not self._is_known or level in self._levels


def rows_of(txn: ReadTransaction) -> int:
    """Return the rows whose number the size of the state follows."""
    return sum(txn.count(table.name) for table in _COUNTED)


class PartWriter:
    """Writes the parts of one attempt at a checkpoint into its manifest."""

    def __init__(self, storage: ChunkStorage, intent: CheckpointIntent, written: Meter) -> None:
        self._storage = storage
        self._intent = intent
        self._written = written

    def write_state(self, manifest: pb.CheckpointManifest, state: Iterator[pb.Change]) -> bool:
        """Write the state, whole if it is small, else as the first level; return whether it is a level."""
        groups = ranges.groups(state, pb.Change.ByteSize, PART_BYTES)
        first = [pb.CheckpointPart(changes=some) for _, some in zip(range(2), groups, strict=False)]
        parts = chain(first, (pb.CheckpointPart(changes=some) for some in groups))
        if len(first) < 2 and sum(part.ByteSize() for part in first) <= SMALL_BYTES:
            self._write_whole(manifest, parts)
            return False
        manifest.levels.append(self._write_level(parts, pb.CheckpointLevel()))
        return True

    def write_entries(
        self, manifest: pb.CheckpointManifest, entries: Iterable[pb.JournalEntry], entry_bytes: int
    ) -> int:
        """Write entries as the last level; return the bytes that were stored."""
        groups = ranges.groups(entries, pb.JournalEntry.ByteSize, PART_BYTES)
        level = pb.CheckpointLevel(has_entries=True, entry_bytes=entry_bytes)
        level = self._write_level((pb.CheckpointPart(entries=some) for some in groups), level)
        manifest.levels.append(level)
        return _stored_bytes(level)

    def _write_whole(self, manifest: pb.CheckpointManifest, parts: Iterable[pb.CheckpointPart]) -> None:
        for index, part in enumerate(self._numbered(parts)):
            data = frames.frame(part)
            self._put(part_name(self._intent.slot, self._intent.attempt, index), data)
            manifest.part_crc32c.append(crc32c(data))
        manifest.parts = len(manifest.part_crc32c)

    def _write_level(self, parts: Iterable[pb.CheckpointPart], level: pb.CheckpointLevel) -> pb.CheckpointLevel:
        level.slot, level.attempt = self._intent.slot, self._intent.attempt
        for index, part in enumerate(self._numbered(parts)):
            data = frames.compressed_frame(part)
            copied = len(data) * 2 <= part.ByteSize()
            for copy in range(1 + copied):
                self._put(level_part_name(level.slot, level.attempt, index, copy=bool(copy)), data)
            level.part_crc32c.append(crc32c(data))
            level.part_bytes.append(len(data))
            level.copied.append(copied)
        return level

    def _numbered(self, parts: Iterable[pb.CheckpointPart]) -> Iterator[pb.CheckpointPart]:
        for index, part in enumerate(parts):
            part.version, part.attempt, part.index = RECORD_VERSION, self._intent.attempt, index
            yield part

    def _put(self, name: str, data: bytes) -> None:
        self._storage.put(name, BufferSource(data), metadata={ATTEMPT_KEY: self._intent.attempt})
        self._written(len(data), "writing a checkpoint", 1)


class LevelWriter:
    """Adds the entries since the newest checkpoint to its levels."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, base: Base) -> None:
        self._metadata = metadata
        self._storage = storage
        self._base = base
        self._last_sequence = 0
        """Of the newest change in what was written."""

    def write(self, manifest: pb.CheckpointManifest, writer: PartWriter) -> None:
        """Write a level of the new entries into a manifest, joined with short ones before it where they fill a part."""
        before, entry_bytes = self._base.manifest, self._base.entry_bytes
        self._last_sequence = before.last_sequence
        tail = _tail(before, entry_bytes)
        kept = before.levels[: len(before.levels) - len(tail)]
        manifest.levels.extend(kept)
        manifest.state_rows, manifest.entry_bytes = before.state_rows, before.entry_bytes + entry_bytes
        entries = chain(self._entries_of(tail), self._new_entries())
        stored = writer.write_entries(manifest, entries, entry_bytes + sum(level.entry_bytes for level in tail))
        manifest.last_sequence = self._last_sequence
        manifest.level_bytes = before.level_bytes + stored + manifest.ByteSize()

    def _entries_of(self, tail: list[pb.CheckpointLevel]) -> Iterator[pb.JournalEntry]:
        listed = {level.attempt for level in tail}
        for part in reader.parts_of(self._base.manifest):
            if part.attempt in listed:
                yield from reader.read_part(self._storage, part).entries

    def _new_entries(self) -> Iterator[pb.JournalEntry]:
        """Yield the entries after the checkpoint, without what their slots have alone; those that are void are not."""
        epoch = self._base.manifest.store_epoch
        with closing(self._read()) as entries:
            for entry in entries:
                if entry.store_epoch < epoch:
                    continue
                epoch = entry.store_epoch
                self._last_sequence = max([self._last_sequence, *(change.sequence for change in entry.changes[-1:])])
                for name in _OF_THE_SLOT:
                    entry.ClearField(name)
                yield entry

    def _read(self) -> Generator[pb.JournalEntry]:
        """Yield every entry; those that were not kept here are fetched, read ahead."""
        missing = [item for item in self._base.items if self._kept(item) is None]
        absent = {item.name for item in missing}
        with closing(reader.read_entries(self._storage, missing)) as fetched:
            for item in self._base.items:
                data = None if item.name in absent else self._kept(item)
                yield next(fetched) if data is None else frames.parse_entry(data, item.name)

    def _kept(self, item: StoredObject) -> bytes | None:
        with self._metadata.read() as txn:
            return kept_entries.kept(txn, entry_slot(item.name) or 0)


def _tail(manifest: pb.CheckpointManifest, entry_bytes: int) -> list[pb.CheckpointLevel]:
    """Return the last levels that are to be written again with new entries; none until they fill a part."""
    short = takewhile(lambda level: level.has_entries and level.entry_bytes < TAIL_BYTES, reversed(manifest.levels))
    tail = list(short)[::-1]
    joined_bytes = entry_bytes + sum(level.entry_bytes for level in tail)
    again_bytes = sum(_stored_bytes(level) for level in tail)
    # Where compression saves little, the bytes are left to the state.
    is_cheap = manifest.level_bytes + again_bytes <= manifest.entry_bytes + entry_bytes
    return tail if joined_bytes >= PART_BYTES and is_cheap else []
