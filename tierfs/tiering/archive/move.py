"""Move one object to another storage class or place: a copy under a new name, whose record then replaces the old one.

Crash order as in objects.py: intent, copy, proof, one commit. The commit changes the object's record, queues the change
for the journal, and makes the old object garbage, due after the grace period and not before the journal has the new
name: open readers finish, and at every moment the bucket alone is enough for a recovery. A copy onto the same name was
not chosen: an object never changes.

The server copies. Its answer proves the copy (a CRC32C, or the MD5 that an etag is); without a proof a copy that can be
read at once is read back against the checksums, and else the bytes are uploaded from here, each part with its sum.
Between the cold tier and the archive place the bytes pass through this machine, and are read back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import object_names
from tierfs.base.words.errors import InvalidRequest, TierfsError, Unavailable
from tierfs.base.words.names import printable
from tierfs.base.words.storage_classes import USUAL_CLASS, is_restored_first
from tierfs.base.words.types import IN_PLACE, AttemptId, ByteRange, PayloadEncoding, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, EtagDiffers, ObjectPiece, ProvedCopies, StoredObject
from tierfs.engine.metadata import chains, changes, policies, tables
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.engine.metadata.record_parts import object_version
from tierfs.engine.metadata.records import (
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


@dataclass(frozen=True, slots=True)
class ArchiveTier:
    """The archive place as the store's tasks see it."""

    tier: ColdTier
    """`require_ours` sees its mark, too, at most PROOF_S ago."""
    require_now: Callable[[], None]
    """Raises unless its mark is there now."""
    why_not: Callable[[], TierfsError | None]
    """Returns why its mark was not seen in the last PROOF_S; None if it was."""


def no_archive() -> ArchiveTier | None:
    """Return None: the store has no archive place."""
    return None


class ArchiveMove:
    """Executor of archive actions. Thread-safe."""

    def __init__(
        self,
        metadata: MetadataStore,
        cold: ColdTier,
        in_class: Callable[[str], ChunkStorage],
        archive: Callable[[], ArchiveTier | None] = no_archive,
        *,
        grace_ms: int,
    ) -> None:
        """`in_class`: the same place, whose new objects get a storage class; "": that of new objects.

        `archive`: the archive place of now.
        """
        self._metadata = metadata
        self._cold = cold
        self._in_class = in_class
        self._archive = archive
        self._grace_ms = grace_ms
        self._proves_none = False
        """Whether this server was seen to prove no copy."""

    def run(self, action: ArchiveAction) -> MovedObject:
        """Carry out an action.

        Raises ChunksMoved when the object changed since the plan, Archived for one that has to be restored first,
        InvalidRequest if the server does not keep the class, or without an archive place, Fenced, QuotaReached,
        DataLoss, Unavailable, WrongColdTier where the archive place is another one, and storage errors; the old object
        stays in every case.
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
        target, require_now = self._target(action.storage_class)
        source = self._source(action.object)
        recipe = MoveRecipe(
            self._metadata, source, target, action, grace_ms=self._grace_ms, uploads=uploads, require_now=require_now
        )
        return objects.make(self._metadata, target, recipe)

    def _target(self, storage_class: str) -> tuple[ColdTier, Callable[[], None]]:
        """Return where objects of a class are made, and what proves that place once more."""
        if storage_class != IN_PLACE:
            return replace(self._cold, storage=self._in_class(storage_class)), _proved_already
        archive = self._required_archive()
        return archive.tier, archive.require_now

    def _source(self, record: ObjectRecord) -> ChunkStorage:
        """Return where an object is. Raises WrongColdTier for an archive place that is away: no object is missing."""
        if record.archive_class != IN_PLACE:
            return self._cold.storage
        archive = self._required_archive()
        archive.tier.require_ours()
        return archive.tier.storage

    def _required_archive(self) -> ArchiveTier:
        archive = self._archive()
        if archive is None:
            raise InvalidRequest("the store has no archive place", remedy="set it: tierfs config archive.place=URL")
        return archive

    def _adopt_etag(self, record: ObjectRecord) -> None:
        """Adopt the etag of an object that was copied or restored, if its bytes are right.

        Raises ChunksMoved then, so that it is planned again.
        """
        reader = VerifiedReader(self._metadata, lambda _: self._source(record))
        if reader.proves(whole_of(record)) and reader.etags.adopt():
            raise ChunksMoved(f"object {record.id} has another etag, which was adopted")


def _proved_already() -> None:
    """Do nothing: what makes the object has proved its place."""


class MoveRecipe(objects.Recipe[MovedObject]):
    """Recipe for the copy of an object in another storage class or place."""

    def __init__(
        self,
        metadata: MetadataStore,
        source: ChunkStorage,
        target: ColdTier,
        action: ArchiveAction,
        *,
        grace_ms: int,
        uploads: bool,
        require_now: Callable[[], None],
    ) -> None:
        """Begin an attempt. `source` has the object; `uploads`: the bytes go through this machine.

        `require_now` proves the place of the copy once more, when the copy is there.
        """
        record = action.object
        assert record.crc32c is not None  # see Movable
        super().__init__(record.crc32c)
        self._metadata = metadata
        self._source = source
        self._target_id = target.location_id
        self._crosses = record.location_id != target.location_id
        self._action = action
        self._grace_ms = grace_ms
        self._uploads = uploads
        self._require_now = require_now
        self._sums = False
        """Whether the server sums up a CRC32C."""
        self._is_proved = False
        self._client_bytes = 0

    def describe(self, txn: WriteTransaction) -> Description:
        record = self._current(txn)
        self._sums = policies.location(txn, self._target_id).verifies_crc32c
        name, metadata = renamed(txn.store, self._action, self.attempt)
        return Description(name, record.stored_bytes, metadata, self._action.segment_id)

    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        record, name = self._action.object, description.name
        # Extra metadata, that a caller gave to the offload, go with the object.
        metadata = {**self._source.stat(record.name).metadata, **description.metadata}
        if self._crosses or self._uploads or not self._is_worth_a_copy(record):
            source = StoredSource(self._source, StoredObject(record.name, record.stored_bytes, record.etag))
            storage.put(name, source, metadata=metadata)
            self._is_proved, self._client_bytes = not self._crosses, record.stored_bytes
        else:
            self._copy(storage, name, metadata)
        stored = storage.stat(name)
        self._require_class(stored)
        # Between two places the bytes have passed two links: they are read back where that is possible.
        self._is_proved = self._is_proved or is_restored_first(stored.storage_class)
        return stored

    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Read a copy back that nothing else proved.

        Raises Unavailable for a copy that differs, and for one that is in the bare mount point of another filesystem.
        """
        if not self._is_proved:
            copy = replace(self._action.object, name=stored.name, etag=stored.etag)
            if not VerifiedReader(self._metadata, lambda _: storage).proves(whole_of(copy)):
                raise Unavailable(f"{printable(stored.name)}: the copy differs; no byte is lost", remedy="retry")
        # In this order: what was written to, and read from, a bare mount point is not there once the mark is.
        self._require_now()
        if self._crosses and storage.stat(stored.name).etag != stored.etag:
            raise Unavailable(f"{printable(stored.name)}: the copy was replaced; no byte is lost", remedy="retry")
        return ()  # the checksums of the object stay as they are

    def link(self, made: Made) -> MovedObject:
        with self._metadata.write() as txn:
            made.end_intents(txn)
            current, intent, kept_as = self._current(txn), made.intents[0], self._action.storage_class
            moved = replace(
                current,
                version=object_version(kept_as),
                location_id=intent.location_id,
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
        if wanted not in ("", IN_PLACE) and kept_as != wanted:
            raise InvalidRequest(
                f"the server keeps {printable(stored.name)} as {printable(kept_as)}, not as {printable(wanted)}",
                remedy="choose a storage class that the server has: the policy archive_class",
            )

    def _current(self, txn: ReadTransaction) -> ObjectRecord:
        """Return the record as it is now. Raises ChunksMoved if it is not the planned one."""
        planned = self._action.object
        current = txn.get(OBJECTS, tables.u64(planned.id))
        facts = (planned.location_id, planned.name, planned.etag, planned.archive_class)
        if current is None or (current.location_id, current.name, current.etag, current.archive_class) != facts:
            raise ChunksMoved(f"object {planned.id} was replaced or deleted meanwhile")
        return current


def require_possible(txn: ReadTransaction, place: LocationRecord, storage_class: str) -> None:
    """Raise InvalidRequest unless objects of the cold tier, a place, can move to a class; "": that of new objects."""
    if why := policies.why_no_archive(txn, place, storage_class or None):
        if storage_class == IN_PLACE:
            raise InvalidRequest(why, remedy="set it: tierfs config archive.place=URL")
        raise InvalidRequest(
            why, remedy="leave the policies archive_after and archive_class off, or use another place: archive.place"
        )


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
