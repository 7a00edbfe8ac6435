"""The records of the store as frozen dataclasses. records.proto documents every field.

`check()` raises DataLoss, on every record written or decoded for a change. `stored` keeps the fields of newer versions.
"""

from __future__ import annotations

from collections.abc import Mapping

from tierfs.base.bytes.byte_times import NO_TIMES, ByteTimes
from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.bytes.joins import NO_JOINS, Joins
from tierfs.base.system.clock import NO_READING, ClockReading
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import (
    CRC_BLOCK_BYTES,
    AttemptId,
    ByteRange,
    ChunkState,
    DirectoryId,
    EntryKind,
    Inode,
    LocationId,
    ObjectId,
    PayloadEncoding,
    SegmentId,
    SegmentKind,
    SegmentStatus,
    Tier,
)
from tierfs.engine.metadata.journal_state import JournalState
from tierfs.engine.metadata.record_parts import (
    NOT_REMOVED,
    NOT_REPEATED,
    NOTHING_HELD_BACK,
    AdoptionTimer,
    IngestedFile,
    OwnerView,
    Removal,
    WriterInfo,
    object_version,
)

RECORD_VERSION = 1

_CRC_BYTES = 4


def require(condition: bool, message: str, *subject: object) -> None:
    """Raise DataLoss naming `subject` unless `condition` holds."""
    if not condition:
        raise DataLoss(f"metadata is damaged: {message}: {' '.join(map(str, subject))}", remedy="run: tierfs check")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Base of everything stored under a key."""

    version: int = RECORD_VERSION
    stored: bytes = field(default=b"", repr=False, compare=False)

    def check(self) -> None:
        """Raise DataLoss when an invariant of the record is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierState:
    """Head of one tier's chain: where its list begins and ends, and its sums."""

    first_chunk: int = 0
    last_chunk: int = 0
    count: int = 0
    bytes: int = 0

    def check(self, segment_id: int) -> None:
        """Raise DataLoss unless the sums and ends of the segment's chain agree."""
        if not self.count and not (self.bytes or self.first_chunk or self.last_chunk):
            return  # of most segments one of both chains is empty
        require(self.count > 0 or self.bytes == 0, "an empty chain contains bytes", segment_id)
        require(self.first_chunk <= self.last_chunk, "a chain ends before it starts", segment_id)
        require(self.count != 1 or self.first_chunk == self.last_chunk, "a single chunk with two ends", segment_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord(Record):
    """A segment: its name, its range and the heads of its chains."""

    id: SegmentId
    parent_id: DirectoryId
    name: str
    inode: Inode
    kind: SegmentKind = SegmentKind.BYTES
    status: SegmentStatus = SegmentStatus.OPEN
    successor_id: int = 0
    start_offset: int = 0
    length: int = 0
    writer_epoch: int = 0
    generation: int = 0
    local: TierState = TierState()
    cold: TierState = TierState()
    created_ms: int = 0
    modified_ms: int = 0
    changed_ms: int = 0
    sealed_ms: int = 0
    recovered_ms: int = 0
    active: bool = False
    resumable: bool = False
    writer: WriterInfo = WriterInfo()
    stream_name: str = ""
    predecessor_id: int = 0
    first_offset: int = 0
    first_byte_ms: int = 0
    owner_view: OwnerView = NOTHING_HELD_BACK
    commit_id: int = 0
    file: IngestedFile = IngestedFile()
    removal: Removal = NOT_REMOVED
    joins: Joins = NO_JOINS
    unsealed_id: int = 0
    recoveries: tuple[int, ...] = ()
    grows_from: int = 0

    @property
    def birth(self) -> int:
        """Greater than that of every segment that appeared in an earlier commit; ids may be reserved before."""
        return self.commit_id or self.id

    @property
    def stream(self) -> str:
        """Last component of the name of the segment's stream, even if the segment is its only member."""
        return self.stream_name or self.name

    @property
    def began_ms(self) -> int:
        """Time its first byte was written; for segments of older versions of tierfs, their time of creation."""
        return self.first_byte_ms or self.created_ms

    @property
    def range(self) -> ByteRange:
        """The readable bytes."""
        return ByteRange(self.start_offset, self.length)

    @property
    def sealed(self) -> bool:
        """Whether the segment accepts no more bytes."""
        return self.status is not SegmentStatus.OPEN

    def tier_state(self, tier: Tier) -> TierState:
        """Return the chain head of `tier`."""
        return self.local if tier is Tier.LOCAL else self.cold

    @property
    def uncovered_bytes(self) -> int:
        """Bytes that no cold chunk holds."""
        return max(0, self.length - self.start_offset - self.readable_bytes(Tier.COLD))

    @property
    def growing_bytes(self) -> int:
        """Bytes of the chunk that is appended to, without those that the cold tier has acknowledged."""
        return min(self.length - self.local.last_chunk, self.uncovered_bytes) if self.active else 0

    @property
    def whole_in_cold(self) -> bool:
        """Whether the cold tier has every byte, none of them lost."""
        return self.cold.bytes >= self.length - self.start_offset and self.cold.count > 0

    def readable_bytes(self, tier: Tier) -> int:
        """Return the bytes of `tier` that can be read: the first chunk may begin before the segment does."""
        state = self.tier_state(tier)
        return max(0, state.bytes - max(0, self.start_offset - state.first_chunk)) if state.count else 0

    def check(self) -> None:
        """Raise DataLoss unless lengths are ordered, empty chains are empty, and only an open segment is active."""
        require(self.start_offset <= self.length, "a segment starts beyond its end", self.id, self.name)
        require(self.first_offset <= self.start_offset, "a segment starts before its first offset", self.id, self.name)
        self.local.check(self.id)
        self.cold.check(self.id)
        require(not self.active or (self.local.count > 0 and not self.sealed), "an impossible active chunk", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRecord(Record):
    """A run of a segment's bytes in one object; one node of a chain."""

    start_offset: int
    length: int
    next: int = 0
    object_id: ObjectId
    object_offset: int = 0
    state: ChunkState = ChunkState.GOOD
    crc32c: int | None = None
    crc_offset: int = 0
    crc_length: int = 0

    @property
    def bytes_crc32c(self) -> int | None:
        """CRC32C of the chunk's bytes where it is known; None once the chunk was cut or merged."""
        return self.crc32c if (self.crc_offset, self.crc_length) == (self.object_offset, self.length) else None

    @property
    def end_offset(self) -> int:
        """Offset just past the chunk's last byte."""
        return self.start_offset + self.length

    @property
    def lost(self) -> bool:
        """Whether no copy verified (invariants 3, 13); the object stays, for when bytes return: a gap has none."""
        return self.state is ChunkState.LOST

    @property
    def held_bytes(self) -> int:
        """Bytes that can be read."""
        return 0 if self.lost else self.length

    @property
    def range(self) -> ByteRange:
        """Bytes of the segment that this chunk holds."""
        return ByteRange(self.start_offset, self.end_offset)

    def check(self) -> None:
        """Raise DataLoss unless the chunk holds bytes, and the list only goes forward without overlap."""
        require(self.length > 0, "a chunk without bytes", self.start_offset)
        require(self.object_id > 0 or self.lost, "only a lost chunk has no object", self.start_offset)
        require(self.next == 0 or self.next >= self.end_offset, "chunks overlap", self.start_offset, self.next)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRecord(Record):
    """One file or S3 object."""

    id: ObjectId
    tier: Tier
    location_id: LocationId = LocationId(0)
    name: str
    length: int
    etag: str = ""
    foreign: bool = False
    references: int = 0
    crc32c: int | None = None
    store_epoch: int = 0
    attempt: AttemptId = AttemptId("")
    created_ms: int = 0
    linked_sequence: int = 0
    written_ms: int = 0
    packed: int = 0
    encoding: PayloadEncoding = PayloadEncoding.RAW
    stored_length: int = 0
    segment_id: int = 0
    payload_start: int = 0
    index_name: str = ""
    entries_name: str = ""
    modified_ms: int = 0
    times: ByteTimes = NO_TIMES
    stored_crc32c: int | None = None
    cipher: int = 0
    kept_plain: bool = False
    archive_class: str = ""

    @property
    def stored_bytes(self) -> int:
        """Size of the file or object itself; `length` counts plain bytes."""
        return self.stored_length or self.length

    @property
    def shrink(self) -> float:
        """The number of plain bytes for each stored one, at least 1."""
        return max(1.0, self.length / self.stored_bytes)

    def in_storage(self, plain_bytes: int) -> int:
        """Return about how many stored bytes so many plain ones take: their share of all."""
        return plain_bytes if not self.stored_length else -(-plain_bytes * self.stored_length // self.length)

    @property
    def written_by_ms(self) -> int:
        """A time by which every byte of a cold object had been appended."""
        return self.written_ms or self.created_ms

    def check(self) -> None:
        """Raise DataLoss unless a cold object has a location and an etag, a ledger's one its ledger, and a compressed
        one its stored bytes in the cold tier; and for an encrypted one."""
        require(self.tier is Tier.LOCAL or self.location_id > 0, "a cold object without a location", self.id)
        require(self.tier is Tier.LOCAL or bool(self.etag), "a cold object without an etag", self.id)
        framed = self.stored_length > self.length and self.segment_id > 0
        require(not self.encoding.is_ledger or framed, "a ledger's object without its ledger", self.id)
        is_compressed = self.encoding is PayloadEncoding.ZSTD_FRAMES
        ours = self.stored_length > 0 and self.tier is Tier.COLD and not self.foreign and not self.segment_id
        require(not is_compressed or ours, "an impossible compressed object", self.id)
        if self.cipher:
            raise DataLoss(f"object {self.id} is encrypted, which this tierfs cannot read", remedy="upgrade tierfs")
        require(self.times.is_sound(), "impossible times of bytes", self.id)
        archivable = self.tier is Tier.COLD and not self.foreign and not self.segment_id
        require(not self.archive_class or archivable, "an impossible archived object", self.id)
        is_marked = self.version >= object_version(self.archive_class)
        require(is_marked, "an archived object of an old form", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksumRun(Record):
    """CRC32C per 128 KiB of an object, from `start` on; packed big-endian."""

    start: int
    crcs: bytes
    object_id: int = 0
    frame_start: int = 0
    stored_start: int = 0
    frame_lengths: tuple[int, ...] = ()
    stored_lengths: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of blocks in the run."""
        return len(self.crcs) // _CRC_BYTES

    def covers(self, start: int, end: int) -> bool:
        """Return whether the run's blocks cover object bytes [start, end)."""
        return self.start <= start and end <= self.start + len(self.crcs) // _CRC_BYTES * CRC_BLOCK_BYTES

    def crc(self, index: int) -> int:
        """Return the CRC32C of the run's block `index`."""
        return int.from_bytes(self.crcs[index * _CRC_BYTES : (index + 1) * _CRC_BYTES], "big")

    def check(self) -> None:
        """Raise DataLoss unless the run has whole CRCs."""
        require(len(self.crcs) % _CRC_BYTES == 0, "a checksum run is cut", self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecord(Record):
    """The superblock: identity, counters, and the journal's position."""

    min_reader_version: int = RECORD_VERSION
    min_writer_version: int = RECORD_VERSION
    store_id: str
    next_id: int = 2
    store_epoch: int = 1
    created_ms: int = 0
    last_wall_ms: int = 0
    next_outbox: int = 1
    next_change: int = 1
    next_garbage: int = 1
    journal: JournalState = JournalState()
    cold_location_id: LocationId = LocationId(0)
    next_request: int = 1
    replica: bool = False
    clock_accepted_ms: int = 0
    clock_seen: ClockReading = NO_READING
    next_expiry_ms: int = 0
    overdue_bytes: int = 0
    overdue_reason: str = ""
    object_moves: int = 0
    archive_left: bool = False
    removals: int = 0

    @property
    def trusted_wall_ms(self) -> int:
        """The newest wall time that was not in doubt; of a store of an older tierfs the newest of all."""
        return self.clock_seen.wall_ms or self.last_wall_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class DirentRecord(Record):
    """One name in a directory."""

    kind: EntryKind
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryRecord(Record):
    """A directory."""

    id: DirectoryId
    parent_id: DirectoryId
    name: str
    inode: Inode
    created_ms: int = 0
    modified_ms: int = 0
    terminated: bool = False
    removal: Removal = NOT_REMOVED
    mode: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocationRecord(Record):
    """A cold location and the preconditions it was found to honour."""

    id: LocationId
    url: str
    endpoint_url: str = ""
    region: str = ""
    profile: str = ""
    writable: bool = True
    create_only_put: bool = True
    create_only_multipart: bool = True
    verifies_crc32c: bool = False
    from_journal: bool = False
    keeps_objects: bool = False
    adoption: AdoptionTimer = NOT_REPEATED
    max_object_bytes: int = 0
    archive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord(Record):
    """Settings of one directory or segment; absent ones are inherited."""

    target_id: int
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentRecord(Record):
    """An object that is about to be created."""

    attempt: AttemptId
    location_id: LocationId
    name: str
    segment_id: SegmentId
    start_offset: int
    end_offset: int
    created_ms: int = 0
    store_epoch: int = 0
    upload_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageRecord(Record):
    """A file or object to delete when it is due and the journal has published `after_sequence`."""

    sequence: int = 0
    due_ms: int
    tier: Tier
    location_id: LocationId = LocationId(0)
    name: str
    length: int = 0
    after_sequence: int = 0
    attempts: int = 0
    last_error: str = ""
    object_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchRecord(Record):
    """One change: an entry of a directory or an inode for mounts, a segment or policies for the holder."""

    parent_inode: int = 0
    name: str = ""
    inode: int = 0
    segment_id: int = 0
    policies: bool = False
