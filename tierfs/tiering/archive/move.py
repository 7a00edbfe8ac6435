"""Move one object to another storage class: a copy under a new name, whose record then replaces the old one.

Crash order as in objects.py: intent, copy, proof, one commit. The commit changes the object's record, queues the change
for the journal, and makes the old object garbage, due after the grace period and not before the journal has the new
name: open readers finish, and at every moment the bucket alone is enough for a recovery. A copy onto the same name was
not chosen: an object never changes.

The server copies. Its answer proves the copy (a CRC32C, or the MD5 that an etag is); without a proof a copy that can be
read at once is read back against the checksums, and else the bytes are uploaded from here, each part with its sum.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tierfs.base.words import object_names
from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.storage_classes import USUAL_CLASS, is_restored_first
from tierfs.base.words.types import AttemptId, ByteRange, PayloadEncoding, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, EtagDiffers, ObjectPiece, ProvedCopies, StoredObject
from tierfs.engine.metadata import chains, changes, policies, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.records import (
    ARCHIVED_VERSION,
    RECORD_VERSION,
    ChunkRecord,
    GarbageRecord,
    LocationRecord,
    ObjectRecord,
    StoreRecord,
)
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.reading.verified import VerifiedReader
from tierfs.tiering import objects
from tierfs.tiering.archive.due import ArchiveAction
from tierfs.tiering.objects import ChunksMoved, ColdTier, Description, Made
from tierfs.tiering.packs.format import moved_name
from tierfs.tiering.relocate import StoredSource

log = logging.getLogger(__name__)

_MD5 = re.compile(r"[0-9a-f]{32}")


class Unproved(Unavailable):
    """A server gave no proof of a copy that nobody can read: it is not linked."""


@dataclass(frozen=True, slots=True)
class MovedObject:
    """Result of one move."""

    bytes: int = 0
    """Stored bytes."""
    client_bytes: int = 0
    """Bytes of them that were uploaded from here."""


class ArchiveMove:
    """Executor of archive actions. Thread-safe."""

    def __init__(
        self, metadata: MetadataStore, cold: ColdTier, in_class: Callable[[str], ChunkStorage], *, grace_ms: int
    ) -> None:
        """`in_class`: the same place, whose new objects get a storage class; "": that of new objects."""
        self._metadata = metadata
        self._cold = cold
        self._in_class = in_class
        self._grace_ms = grace_ms
        self._proves_none = False
        """Whether this server was seen to prove no copy."""

    def run(self, action: ArchiveAction) -> MovedObject:
        """Carry out an action.

        Raises ChunksMoved when the object changed since the plan, Archived for one that has to be restored first,
        InvalidRequest if the server does not keep the class, Fenced, QuotaReached, DataLoss, Unavailable, and storage
        errors; the old object stays in every case.
        """
        try:
            return self._make(action, uploads=self._proves_none and is_restored_first(action.storage_class))
        except Unproved as exc:
            log.info("%s; its bytes are uploaded", exc)
            self._proves_none = True
        except EtagDiffers:
            self._adopt_etag(action.object)
            raise
        return self._make(action, uploads=True)

    def _make(self, action: ArchiveAction, *, uploads: bool) -> MovedObject:
        cold = replace(self._cold, storage=self._in_class(action.storage_class))
        recipe = MoveRecipe(self._metadata, self._cold, action, self._grace_ms, uploads=uploads)
        return objects.make(self._metadata, cold, recipe)

    def _adopt_etag(self, record: ObjectRecord) -> None:
        """Adopt the etag of an object that was copied or restored, if its bytes are right.

        Raises ChunksMoved then, so that it is planned again.
        """
        reader = VerifiedReader(self._metadata, lambda _: self._cold.storage)
        if reader.proves(whole_of(record)) and reader.etags.adopt():
            raise ChunksMoved(f"object {record.id} has another etag, which was adopted")


class MoveRecipe(objects.Recipe[MovedObject]):
    """Recipe for the copy of an object in another storage class."""

    def __init__(
        self, metadata: MetadataStore, cold: ColdTier, action: ArchiveAction, grace_ms: int, *, uploads: bool
    ) -> None:
        """Begin an attempt. `uploads`: the bytes go through this machine."""
        record = action.object
        assert record.crc32c is not None  # see Movable
        super().__init__(record.crc32c)
        self._metadata = metadata
        self._cold = cold
        self._action = action
        self._grace_ms = grace_ms
        self._uploads = uploads
        self._sums = False
        """Whether the server sums up a CRC32C."""
        self._is_proved = False
        self._client_bytes = 0

    def describe(self, txn: WriteTransaction) -> Description:
        record = self._current(txn)
        self._sums = policies.location(txn, self._cold.location_id).verifies_crc32c
        name, metadata = renamed(txn.store, self._action, self.attempt)
        return Description(name, record.stored_bytes, metadata, self._action.segment_id)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        record, name = self._action.object, description.name
        # Extra metadata, that a caller gave to the offload, go with the object.
        metadata = {**self._cold.storage.stat(record.name).metadata, **description.metadata}
        if self._uploads or not self._is_worth_a_copy(record):
            source = StoredSource(self._cold.storage, StoredObject(record.name, record.stored_bytes, record.etag))
            storage.put(name, source, metadata=metadata)
            self._is_proved, self._client_bytes = True, record.stored_bytes
        else:
            self._copy(storage, name, metadata)
        stored = storage.stat(name)
        self._require_class(stored)
        return stored

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Read a copy back that nothing else proved. Raises Unavailable for a copy that differs."""
        if not self._is_proved:
            copy = replace(self._action.object, name=stored.name, etag=stored.etag)
            if not VerifiedReader(self._metadata, lambda _: storage).proves(whole_of(copy)):
                raise Unavailable(f"{printable(stored.name)}: the copy differs; no byte is lost", remedy="retry")
        return ()  # the checksums of the object stay as they are

    def link(self, made: Made) -> MovedObject:
        with self._metadata.write() as txn:
            made.end_intents(txn)
            current, intent, kept_as = self._current(txn), made.intents[0], self._action.storage_class
            moved = replace(
                current,
                version=ARCHIVED_VERSION if kept_as else RECORD_VERSION,
                name=made.name,
                etag=made.stored.etag,
                attempt=intent.attempt,
                store_epoch=intent.store_epoch,
                archive_class=kept_as,
            )
            sequence = changes.move_object(txn, moved)
            garbage = GarbageRecord(
                due_ms=txn.now_ms + self._grace_ms,
                tier=Tier.COLD,
                location_id=current.location_id,
                name=current.name,
                length=current.stored_bytes,
                after_sequence=sequence,
            )
            chains.add_garbage(txn, garbage)
            txn.touch(segment_id=self._action.segment_id)
        return MovedObject(made.stored.length_bytes, self._client_bytes)

    def _copy(self, storage: ChunkStorage, name: str, metadata: Mapping[str, str]) -> None:
        """Let the server copy. Raises Unproved for a copy that nobody can read."""
        record = self._action.object
        piece = ObjectPiece(record.name, 0, record.stored_bytes, record.etag)
        if isinstance(storage, ProvedCopies):
            self._is_proved = storage.copy_proved(name, piece, stored_crc32c(record), metadata) is not None
        if self._is_proved:
            return
        if is_restored_first(self._action.storage_class):
            raise Unproved(f"the server gives no proof of its copy of {printable(record.name)}", remedy="retry")
        self._client_bytes = storage.compose(name, [piece], metadata=metadata).client_bytes

    def _is_worth_a_copy(self, record: ObjectRecord) -> bool:
        """Return whether a copy can be proved: one in vain in a class of archives is paid for half a year."""
        can_be_read = not is_restored_first(self._action.storage_class)
        return can_be_read or self._sums or bool(_MD5.fullmatch(record.etag))

    def _require_class(self, stored: StoredObject) -> None:
        wanted, kept_as = self._action.storage_class, stored.storage_class or USUAL_CLASS
        if wanted and kept_as != wanted:
            raise InvalidRequest(
                f"the server keeps {printable(stored.name)} as {printable(kept_as)}, not as {printable(wanted)}",
                remedy="choose a storage class that the server has: the policy archive_class",
            )

    def _current(self, txn: ReadTransaction) -> ObjectRecord:
        """Return the record as it is now. Raises ChunksMoved if it is not the planned one."""
        planned = self._action.object
        current = txn.get(OBJECTS, tables.u64(planned.id))
        facts = (planned.name, planned.etag, planned.archive_class)
        if current is None or (current.name, current.etag, current.archive_class) != facts:
            raise ChunksMoved(f"object {planned.id} was replaced or deleted meanwhile")
        return current


def require_classes(place: LocationRecord) -> None:
    """Raise InvalidRequest for a place without storage classes, and for one in which the old objects would stay."""
    if why := policies.why_no_archive(place):
        raise InvalidRequest(why, remedy="leave the policies archive_after and archive_class off")


def whole_of(record: ObjectRecord) -> PlacedChunk:
    """Return all of an object as one chunk."""
    return PlacedChunk(ChunkRecord(start_offset=0, length=record.length, object_id=record.id), record)


def stored_crc32c(record: ObjectRecord) -> int | None:
    """Return the CRC32C of an object's stored bytes, if it is known."""
    return record.stored_crc32c if record.encoding is not PayloadEncoding.RAW else record.crc32c


def renamed(store: StoreRecord, action: ArchiveAction, attempt: AttemptId) -> tuple[str, dict[str, str]]:
    """Return another name for an object, of the same form, and its user metadata.

    One that is a chunk of one segment is named by that; else the name says the same as the old one.
    """
    record, epoch = action.object, store.store_epoch
    crc32c, is_compressed = record.crc32c, record.encoding is PayloadEncoding.ZSTD_FRAMES
    assert crc32c is not None
    pack = moved_name(record.name, attempt)
    if pack is not None:
        return pack, objects.pack_metadata(store, attempt, crc32c)
    path, segment_id, held = action.path, action.segment_id, action.whole
    if held is None:
        chunk = object_names.CHUNK.fullmatch(record.name)
        assert chunk is not None  # see DueObjects
        path, segment_id = chunk["path"], SegmentId(int(chunk["segment"]))
        held = ByteRange(int(chunk["start"]), int(chunk["end"]))
    name = objects.object_name(path, segment_id, held, epoch, attempt, crc32c, is_compressed=is_compressed)
    return name, objects.object_metadata(store, path, segment_id, held, attempt, crc32c)
