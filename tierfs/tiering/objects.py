"""Make cold objects: one routine for offload, packs, consolidation and ledgers.

Crash order: intent committed -> object written -> verified -> one commit that replaces the intent by the object's
record and links it (`Recipe.link`), with the change for the journal. A crash or an error leaves an intent whose
object no record names: it is abandoned, so the object becomes garbage. That happens at once after an error, and
after a crash when the next holder begins (`abandon_all`). A commit that finds its intent gone links nothing: another
holder took the object for a dead process's, and deletes it.

The intent of a job, as distributed writers have, names all objects below `uploads/<job>/`. Its driver is not a process
that could hold a lock: Spark runs the beginning and the commit of a write in separate workers. So a job lives as long
as objects are added to it, and outlives the holder; `gc` ends the dead ones (dead_uploads.py).
"""

from __future__ import annotations

import base64
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import object_names
from tierfs.base.words.errors import Conflict, DataLoss, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import AttemptId, ByteRange, LocationId, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage, StoredObject
from tierfs.engine.metadata import chains, checksums
from tierfs.engine.metadata.records import RECORD_VERSION, IntentRecord, ObjectRecord, StoreRecord
from tierfs.engine.metadata.store import MetadataStore, new_id
from tierfs.engine.metadata.tables import INTENTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.tiering import quota
from tierfs.tiering.extra_metadata import NO_EXTRA

if TYPE_CHECKING:
    from tierfs.engine.frames.frame_map import FrameMap

log = logging.getLogger(__name__)

R = TypeVar("R")

JOBS_PREFIX = "uploads/"

# Time without a new object after which a job counts as dead. A guess: tasks compute for less.
JOB_REST_MS = 24 * 3600 * 1000

_NO_SEGMENT = SegmentId(0)

_NO_BYTES = ByteRange(0, 0)

# Delay of the second deletion: a server may still carry out a PUT that was cut off.
_SECOND_DELETE_MS = 3600 * 1000

_JOB = re.compile(r"uploads/[^/]+/")


class ChunksMoved(Conflict):
    """The chunks of an action changed since it was planned; plan again."""


@dataclass(frozen=True, slots=True)
class ColdTier:
    """The cold tier as the store's tasks see it."""

    location_id: LocationId
    storage: ChunkStorage
    require_ours: Callable[[], None]
    """Raises unless ownership of the bucket was confirmed recently (Publisher.require_recent_ownership)."""
    require_place: Callable[[ReadTransaction], None]
    """Raises Conflict once the store has another place than `storage` (Publisher.require_place)."""


@dataclass(frozen=True, slots=True)
class Description:
    """An object that is about to be made."""

    name: str
    length_bytes: int
    """Stored bytes."""
    metadata: Mapping[str, str]
    segment_id: SegmentId = SegmentId(0)
    """0 for an object of several segments."""
    start_offset: int = 0
    """Offset of its first byte in the segment."""
    beside: tuple[str, ...] = ()
    """Names of objects that are made and deleted with it."""


class StoredForm(Protocol):
    """What a compressed object is stored as."""

    @property
    def frames(self) -> FrameMap:
        """The places of its frames, and of the seek tables between them."""
        ...

    @property
    def crc32c(self) -> int:
        """The CRC32C of all stored bytes."""
        ...

    @property
    def plain_bytes(self) -> int:
        """Number of the bytes before they were compressed."""
        ...

    @property
    def length_bytes(self) -> int:
        """Total number of stored bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """An object that was written and verified, and that no record names yet."""

    intents: tuple[IntentRecord, ...]
    """The object's own intent first, then those of the objects beside it."""
    stored: StoredObject
    grid: Sequence[int]
    crc32c: int
    compressed: StoredForm | None = None
    """The compressed form that was stored; None: the plain bytes were."""

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.intents[0].name

    def end_intents(self, txn: WriteTransaction) -> None:
        """Drop the intents, in the commit that names the object.

        Raises ChunksMoved when one is gone: the object is garbage by now, and linking it would lose bytes.
        """
        if not all([txn.delete(INTENTS.name, intent.attempt.encode()) for intent in self.intents]):
            raise ChunksMoved(
                f"{printable(self.name)}: another holder discarded this object as that of an exited process"
            )

    def record(self, txn: WriteTransaction, object_id: ObjectId) -> ObjectRecord:
        """Drop the intents, write the checksums and return the object's record, to be linked in their place.

        Raises as `end_intents`.
        """
        self.end_intents(txn)
        intent, compressed = self.intents[0], self.compressed
        record = ObjectRecord(
            id=object_id,
            tier=Tier.COLD,
            location_id=intent.location_id,
            name=intent.name,
            length=self.stored.length_bytes,
            etag=self.stored.etag,
            crc32c=self.crc32c,
            store_epoch=intent.store_epoch,
            attempt=intent.attempt,
            created_ms=txn.now_ms,
        )
        if compressed is None:
            checksums.put_grid(txn, object_id, self.grid)
            return record
        from tierfs.engine.metadata import frame_rows  # commands that look at a store make no object

        frame_rows.put_compressed(txn, object_id, self.grid, compressed.frames, compressed.plain_bytes)
        plain = replace(record, length=compressed.plain_bytes)
        return frame_rows.as_compressed(plain, self.stored.length_bytes, compressed.crc32c)


class Recipe(ABC, Generic[R]):
    """The steps that make one object; `make` calls each once and in this order."""

    not_linked: tuple[type[TierfsError], ...] = (TierfsError,)
    """Errors of `link` after which it is certain that no record names the object."""
    frees: bool = False
    """Whether more bytes end by it than it writes: then no quota keeps it."""
    compressed: StoredForm | None = None
    """The compressed form that it stores; None: it stores the plain bytes."""

    def __init__(self, crc32c: int) -> None:
        """Choose the attempt's id. `crc32c`: of all bytes, known before they are written."""
        self.attempt = AttemptId(new_id())
        self.crc32c = crc32c

    @abstractmethod
    def describe(self, txn: WriteTransaction) -> Description:
        """Revalidate the sources in the transaction of the intent and return the object's description.

        Raises ChunksMoved if they changed.
        """

    @abstractmethod
    def write(self, storage: ChunkStorage, description: Description) -> StoredObject:
        """Write the object and return it as stored."""

    @abstractmethod
    def verify(self, storage: ChunkStorage, stored: StoredObject) -> Sequence[int]:
        """Check the bytes and return the CRCs of their blocks. Raises DataLoss for damage; `make` checked the size."""

    @abstractmethod
    def link(self, made: Made) -> R:
        """Revalidate the chunks and commit the object's record (`Made.record`) together with its links."""


def make(metadata: MetadataStore, cold: ColdTier, recipe: Recipe[R]) -> R:
    """Make one cold object, in the crash order above, and return the result of `link`.

    Raises Fenced, WrongColdTier, QuotaReached, DataLoss for an object of another size, and errors of the steps and the
    storage; then no record names the object.
    """
    cold.require_ours()
    with metadata.write() as txn:
        description = recipe.describe(txn)
        if not recipe.frees:
            quota.require_room(txn, description.length_bytes)
        intents = _intend(txn, cold, recipe.attempt, description)
    try:
        stored = recipe.write(cold.storage, description)
        if stored.length_bytes != description.length_bytes:
            wanted = description.length_bytes
            raise DataLoss(f"{printable(description.name)}: {stored.length_bytes} of {wanted} bytes arrived")
        made = Made(intents, stored, recipe.verify(cold.storage, stored), recipe.crc32c, recipe.compressed)
    except Exception as exc:  # a defect of ours as well: no record names the object, and work repeated must not pile up
        _give_up(metadata, intents, exc)
        raise
    try:
        return recipe.link(made)
    except recipe.not_linked as exc:
        _give_up(metadata, intents, exc)
        raise


def _intend(
    txn: WriteTransaction, cold: ColdTier, attempt: AttemptId, description: Description
) -> tuple[IntentRecord, ...]:
    """Write the intents of the object and of those beside it, before the objects are written."""
    cold.require_place(txn)
    location_id, segment_id = cold.location_id, description.segment_id
    held = ByteRange(description.start_offset, description.start_offset + description.length_bytes)
    own = intend(txn, attempt, location_id, description.name, segment_id, held)
    beside = (intend(txn, AttemptId(new_id()), location_id, name, segment_id) for name in description.beside)
    return own, *beside


def intend(
    txn: WriteTransaction,
    attempt: AttemptId,
    location_id: LocationId,
    name: str,
    segment_id: SegmentId = _NO_SEGMENT,
    held: ByteRange = _NO_BYTES,
) -> IntentRecord:
    """Write the intent of an object, or of a job that has `name` as its prefix, before anything is written there."""
    intent = IntentRecord(
        attempt=attempt,
        location_id=location_id,
        name=name,
        segment_id=segment_id,
        start_offset=held.start,
        end_offset=held.end,
        created_ms=txn.now_ms,
        store_epoch=txn.store.store_epoch,
    )
    txn.put(INTENTS, attempt.encode(), intent)
    return intent


def _give_up(metadata: MetadataStore, intents: Sequence[IntentRecord], error: Exception) -> None:
    log.info("writing of %s stopped: %s", printable(intents[0].name), error)
    for intent in intents:
        abandon_intent(metadata, intent)


def abandon_intent(metadata: MetadataStore, intent: IntentRecord) -> None:
    """Make the object of an intent garbage. Does nothing if the intent is gone: it was abandoned or linked."""
    with metadata.write() as txn:
        discard(txn, intent)


def discard(txn: WriteTransaction, intent: IntentRecord) -> None:
    """Do the same in a transaction. What a job uploaded, `gc` finds."""
    if not txn.delete(INTENTS.name, intent.attempt.encode()) or is_job(intent):
        return
    length = intent.end_offset - intent.start_offset
    chains.discard(txn, intent.location_id, intent.name, length)
    # Of no bytes: they count once, and are gone by then.
    chains.discard(txn, intent.location_id, intent.name, due_ms=txn.now_ms + _SECOND_DELETE_MS)


def abandon_all(metadata: MetadataStore) -> int:
    """Turn the unfinished objects of a crashed holder into garbage and return their number.

    Call it as the holder, before any other work.
    """
    with metadata.read() as txn:
        intents = [intent for _, intent in txn.scan(INTENTS) if not is_job(intent)]
    for intent in intents:
        abandon_intent(metadata, intent)
    return len(intents)


def is_job(intent: IntentRecord) -> bool:
    """Return whether an intent is that of a job."""
    return object_names.is_job(intent.name)


def job_of(name: str) -> str:
    """Return the `uploads/<job>/` that an object lies in; empty for other objects."""
    parsed = _JOB.match(name)
    return parsed[0] if parsed is not None else ""


def jobs(txn: ReadTransaction) -> dict[str, IntentRecord]:
    """Return the jobs that may still be committed, by the prefix of their objects."""
    return {intent.name: intent for _, intent in txn.scan(INTENTS) if is_job(intent)}


def object_name(
    segment_path: str,
    segment_id: SegmentId,
    held: ByteRange,
    epoch: int,
    attempt: AttemptId,
    crc: int | None,
    *,
    is_compressed: bool = False,
) -> str:
    """Return the name of a cold object (design §6); never used twice.

    It contains the CRC32C of all plain bytes, so that a copy without metadata can be verified; older objects have none.
    """
    suffix = "" if crc is None else f"-c{crc:08x}"
    if is_compressed:
        suffix += object_names.COMPRESSED
    return f"segments/{segment_path}/{segment_id}/chunk-{held.start:020d}-{held.end:020d}-e{epoch}-{attempt}{suffix}"


def describe_range(
    txn: WriteTransaction,
    segment_path: str,
    segment_id: SegmentId,
    held: ByteRange,
    attempt: AttemptId,
    crc: int,
    compressed_bytes: int | None = None,
    extra: Mapping[str, str] = NO_EXTRA,
) -> Description:
    """Describe an object of one segment's bytes, which has so many of them when it is compressed.

    `extra`: checked extra metadata.
    """
    is_compressed = compressed_bytes is not None
    epoch = txn.store.store_epoch
    name = object_name(segment_path, segment_id, held, epoch, attempt, crc, is_compressed=is_compressed)
    metadata = {**extra, **object_metadata(txn.store, segment_path, segment_id, held, attempt, crc)}
    return Description(name, compressed_bytes or held.length_bytes, metadata, segment_id, held.start)


def object_metadata(
    store: StoreRecord, segment_path: str, segment_id: SegmentId, held: ByteRange, attempt: AttemptId, crc: int
) -> dict[str, str]:
    """Return an object's user metadata, from which a store can be rebuilt without a journal. ASCII, under 2 KiB.

    The name is base64url: names of up to 800 bytes stay under S3's limit, with percent-encoding they would not.
    """
    return {
        "format": str(RECORD_VERSION),
        "store": store.store_id,
        "segment": str(segment_id),
        "name": base64.urlsafe_b64encode(segment_path.encode()).decode("ascii"),
        "start": str(held.start),
        "end": str(held.end),
        "epoch": str(store.store_epoch),
        "attempt": attempt,
        "crc32c": f"{crc:08x}",
    }


def pack_metadata(store: StoreRecord, attempt: AttemptId, crc: int) -> dict[str, str]:
    """Return a pack's user metadata, for readers that do not read its index."""
    return {
        "format": str(RECORD_VERSION),
        "store": store.store_id,
        "epoch": str(store.store_epoch),
        "attempt": attempt,
        "crc32c": f"{crc:08x}",
    }
