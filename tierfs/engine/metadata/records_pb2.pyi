from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TierState(_message.Message):
    __slots__ = ("first_chunk", "last_chunk", "count", "bytes")
    FIRST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    LAST_CHUNK_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    first_chunk: int
    last_chunk: int
    count: int
    bytes: int
    def __init__(self, first_chunk: _Optional[int] = ..., last_chunk: _Optional[int] = ..., count: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class WriterInfo(_message.Message):
    __slots__ = ("pid", "host", "command", "since_ms")
    PID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    pid: int
    host: str
    command: str
    since_ms: int
    def __init__(self, pid: _Optional[int] = ..., host: _Optional[str] = ..., command: _Optional[str] = ..., since_ms: _Optional[int] = ...) -> None: ...

class SegmentRecord(_message.Message):
    __slots__ = ("version", "id", "parent_id", "name", "inode", "kind", "status", "successor_id", "start_offset", "length", "writer_epoch", "generation", "local", "cold", "created_ms", "modified_ms", "changed_ms", "sealed_ms", "recovered_ms", "active", "resumable", "writer", "stream_name", "predecessor_id", "first_offset", "first_byte_ms", "owner_view", "commit_id", "file", "removal", "joins", "unsealed_id", "recoveries", "grows_from")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SUCCESSOR_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    WRITER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    COLD_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    SEALED_MS_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_MS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    STREAM_NAME_FIELD_NUMBER: _ClassVar[int]
    PREDECESSOR_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_BYTE_MS_FIELD_NUMBER: _ClassVar[int]
    OWNER_VIEW_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    REMOVAL_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    UNSEALED_ID_FIELD_NUMBER: _ClassVar[int]
    RECOVERIES_FIELD_NUMBER: _ClassVar[int]
    GROWS_FROM_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: int
    parent_id: int
    name: str
    inode: int
    kind: int
    status: int
    successor_id: int
    start_offset: int
    length: int
    writer_epoch: int
    generation: int
    local: TierState
    cold: TierState
    created_ms: int
    modified_ms: int
    changed_ms: int
    sealed_ms: int
    recovered_ms: int
    active: bool
    resumable: bool
    writer: WriterInfo
    stream_name: str
    predecessor_id: int
    first_offset: int
    first_byte_ms: int
    owner_view: OwnerView
    commit_id: int
    file: IngestedFile
    removal: Removal
    joins: Joins
    unsealed_id: int
    recoveries: _containers.RepeatedScalarFieldContainer[int]
    grows_from: int
    def __init__(self, version: _Optional[int] = ..., id: _Optional[int] = ..., parent_id: _Optional[int] = ..., name: _Optional[str] = ..., inode: _Optional[int] = ..., kind: _Optional[int] = ..., status: _Optional[int] = ..., successor_id: _Optional[int] = ..., start_offset: _Optional[int] = ..., length: _Optional[int] = ..., writer_epoch: _Optional[int] = ..., generation: _Optional[int] = ..., local: _Optional[_Union[TierState, _Mapping]] = ..., cold: _Optional[_Union[TierState, _Mapping]] = ..., created_ms: _Optional[int] = ..., modified_ms: _Optional[int] = ..., changed_ms: _Optional[int] = ..., sealed_ms: _Optional[int] = ..., recovered_ms: _Optional[int] = ..., active: _Optional[bool] = ..., resumable: _Optional[bool] = ..., writer: _Optional[_Union[WriterInfo, _Mapping]] = ..., stream_name: _Optional[str] = ..., predecessor_id: _Optional[int] = ..., first_offset: _Optional[int] = ..., first_byte_ms: _Optional[int] = ..., owner_view: _Optional[_Union[OwnerView, _Mapping]] = ..., commit_id: _Optional[int] = ..., file: _Optional[_Union[IngestedFile, _Mapping]] = ..., removal: _Optional[_Union[Removal, _Mapping]] = ..., joins: _Optional[_Union[Joins, _Mapping]] = ..., unsealed_id: _Optional[int] = ..., recoveries: _Optional[_Iterable[int]] = ..., grows_from: _Optional[int] = ...) -> None: ...

class Removal(_message.Message):
    __slots__ = ("path", "removed_ms", "due_ms", "segments", "directories", "bytes", "local_bytes", "cold_bytes", "uncovered_bytes", "active_bytes", "sequence")
    PATH_FIELD_NUMBER: _ClassVar[int]
    REMOVED_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNCOVERED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    path: str
    removed_ms: int
    due_ms: int
    segments: int
    directories: int
    bytes: int
    local_bytes: int
    cold_bytes: int
    uncovered_bytes: int
    active_bytes: int
    sequence: int
    def __init__(self, path: _Optional[str] = ..., removed_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., segments: _Optional[int] = ..., directories: _Optional[int] = ..., bytes: _Optional[int] = ..., local_bytes: _Optional[int] = ..., cold_bytes: _Optional[int] = ..., uncovered_bytes: _Optional[int] = ..., active_bytes: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class Joins(_message.Message):
    __slots__ = ("numbers", "names", "unsealed_ids", "recoveries")
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    UNSEALED_IDS_FIELD_NUMBER: _ClassVar[int]
    RECOVERIES_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    unsealed_ids: _containers.RepeatedScalarFieldContainer[int]
    recoveries: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, numbers: _Optional[_Iterable[int]] = ..., names: _Optional[_Iterable[str]] = ..., unsealed_ids: _Optional[_Iterable[int]] = ..., recoveries: _Optional[_Iterable[int]] = ...) -> None: ...

class IngestedFile(_message.Message):
    __slots__ = ("mode", "modified_ns", "length")
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_NS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    mode: int
    modified_ns: int
    length: int
    def __init__(self, mode: _Optional[int] = ..., modified_ns: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class OwnerView(_message.Message):
    __slots__ = ("length", "status", "sealed_ms")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SEALED_MS_FIELD_NUMBER: _ClassVar[int]
    length: int
    status: int
    sealed_ms: int
    def __init__(self, length: _Optional[int] = ..., status: _Optional[int] = ..., sealed_ms: _Optional[int] = ...) -> None: ...

class ChunkRecord(_message.Message):
    __slots__ = ("version", "start_offset", "length", "next", "object_id", "object_offset", "state", "crc32c", "crc_offset", "crc_length")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    CRC_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CRC_LENGTH_FIELD_NUMBER: _ClassVar[int]
    version: int
    start_offset: int
    length: int
    next: int
    object_id: int
    object_offset: int
    state: int
    crc32c: int
    crc_offset: int
    crc_length: int
    def __init__(self, version: _Optional[int] = ..., start_offset: _Optional[int] = ..., length: _Optional[int] = ..., next: _Optional[int] = ..., object_id: _Optional[int] = ..., object_offset: _Optional[int] = ..., state: _Optional[int] = ..., crc32c: _Optional[int] = ..., crc_offset: _Optional[int] = ..., crc_length: _Optional[int] = ...) -> None: ...

class ObjectRecord(_message.Message):
    __slots__ = ("version", "id", "tier", "location_id", "name", "length", "etag", "foreign", "references", "crc32c", "store_epoch", "attempt", "created_ms", "linked_sequence", "written_ms", "packed", "encoding", "stored_length", "segment_id", "payload_start", "index_name", "entries_name", "modified_ms", "times", "stored_crc32c", "cipher", "key_id", "kept_plain", "archive_class")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    LINKED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    STORED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_START_FIELD_NUMBER: _ClassVar[int]
    INDEX_NAME_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_NAME_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    STORED_CRC32C_FIELD_NUMBER: _ClassVar[int]
    CIPHER_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    KEPT_PLAIN_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_CLASS_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: int
    tier: int
    location_id: int
    name: str
    length: int
    etag: str
    foreign: bool
    references: int
    crc32c: int
    store_epoch: int
    attempt: str
    created_ms: int
    linked_sequence: int
    written_ms: int
    packed: int
    encoding: int
    stored_length: int
    segment_id: int
    payload_start: int
    index_name: str
    entries_name: str
    modified_ms: int
    times: ByteTimes
    stored_crc32c: int
    cipher: int
    key_id: bytes
    kept_plain: bool
    archive_class: str
    def __init__(self, version: _Optional[int] = ..., id: _Optional[int] = ..., tier: _Optional[int] = ..., location_id: _Optional[int] = ..., name: _Optional[str] = ..., length: _Optional[int] = ..., etag: _Optional[str] = ..., foreign: _Optional[bool] = ..., references: _Optional[int] = ..., crc32c: _Optional[int] = ..., store_epoch: _Optional[int] = ..., attempt: _Optional[str] = ..., created_ms: _Optional[int] = ..., linked_sequence: _Optional[int] = ..., written_ms: _Optional[int] = ..., packed: _Optional[int] = ..., encoding: _Optional[int] = ..., stored_length: _Optional[int] = ..., segment_id: _Optional[int] = ..., payload_start: _Optional[int] = ..., index_name: _Optional[str] = ..., entries_name: _Optional[str] = ..., modified_ms: _Optional[int] = ..., times: _Optional[_Union[ByteTimes, _Mapping]] = ..., stored_crc32c: _Optional[int] = ..., cipher: _Optional[int] = ..., key_id: _Optional[bytes] = ..., kept_plain: _Optional[bool] = ..., archive_class: _Optional[str] = ...) -> None: ...

class ByteTimes(_message.Message):
    __slots__ = ("ends", "first_ms", "written_ms")
    ENDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    ends: _containers.RepeatedScalarFieldContainer[int]
    first_ms: _containers.RepeatedScalarFieldContainer[int]
    written_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ends: _Optional[_Iterable[int]] = ..., first_ms: _Optional[_Iterable[int]] = ..., written_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class ChecksumRun(_message.Message):
    __slots__ = ("version", "start", "crcs", "object_id", "frame_start", "stored_start", "frame_lengths", "stored_lengths", "nonces")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    CRCS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    FRAME_START_FIELD_NUMBER: _ClassVar[int]
    STORED_START_FIELD_NUMBER: _ClassVar[int]
    FRAME_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    STORED_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    NONCES_FIELD_NUMBER: _ClassVar[int]
    version: int
    start: int
    crcs: bytes
    object_id: int
    frame_start: int
    stored_start: int
    frame_lengths: _containers.RepeatedScalarFieldContainer[int]
    stored_lengths: _containers.RepeatedScalarFieldContainer[int]
    nonces: bytes
    def __init__(self, version: _Optional[int] = ..., start: _Optional[int] = ..., crcs: _Optional[bytes] = ..., object_id: _Optional[int] = ..., frame_start: _Optional[int] = ..., stored_start: _Optional[int] = ..., frame_lengths: _Optional[_Iterable[int]] = ..., stored_lengths: _Optional[_Iterable[int]] = ..., nonces: _Optional[bytes] = ...) -> None: ...

class StoreRecord(_message.Message):
    __slots__ = ("version", "min_reader_version", "min_writer_version", "store_id", "next_id", "store_epoch", "created_ms", "last_wall_ms", "next_outbox", "next_change", "next_garbage", "journal", "cold_location_id", "next_request", "replica", "clock_accepted_ms", "clock_seen", "next_expiry_ms", "overdue_bytes", "overdue_reason", "object_moves", "archive_left", "removals")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MIN_READER_VERSION_FIELD_NUMBER: _ClassVar[int]
    MIN_WRITER_VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_WALL_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OUTBOX_FIELD_NUMBER: _ClassVar[int]
    NEXT_CHANGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_GARBAGE_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    COLD_LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    CLOCK_ACCEPTED_MS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_SEEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_REASON_FIELD_NUMBER: _ClassVar[int]
    OBJECT_MOVES_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_LEFT_FIELD_NUMBER: _ClassVar[int]
    REMOVALS_FIELD_NUMBER: _ClassVar[int]
    version: int
    min_reader_version: int
    min_writer_version: int
    store_id: str
    next_id: int
    store_epoch: int
    created_ms: int
    last_wall_ms: int
    next_outbox: int
    next_change: int
    next_garbage: int
    journal: JournalState
    cold_location_id: int
    next_request: int
    replica: bool
    clock_accepted_ms: int
    clock_seen: ClockReading
    next_expiry_ms: int
    overdue_bytes: int
    overdue_reason: str
    object_moves: int
    archive_left: bool
    removals: int
    def __init__(self, version: _Optional[int] = ..., min_reader_version: _Optional[int] = ..., min_writer_version: _Optional[int] = ..., store_id: _Optional[str] = ..., next_id: _Optional[int] = ..., store_epoch: _Optional[int] = ..., created_ms: _Optional[int] = ..., last_wall_ms: _Optional[int] = ..., next_outbox: _Optional[int] = ..., next_change: _Optional[int] = ..., next_garbage: _Optional[int] = ..., journal: _Optional[_Union[JournalState, _Mapping]] = ..., cold_location_id: _Optional[int] = ..., next_request: _Optional[int] = ..., replica: _Optional[bool] = ..., clock_accepted_ms: _Optional[int] = ..., clock_seen: _Optional[_Union[ClockReading, _Mapping]] = ..., next_expiry_ms: _Optional[int] = ..., overdue_bytes: _Optional[int] = ..., overdue_reason: _Optional[str] = ..., object_moves: _Optional[int] = ..., archive_left: _Optional[bool] = ..., removals: _Optional[int] = ...) -> None: ...

class ClockReading(_message.Message):
    __slots__ = ("boot_id", "boot_ms", "wall_ms")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_MS_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    boot_ms: int
    wall_ms: int
    def __init__(self, boot_id: _Optional[str] = ..., boot_ms: _Optional[int] = ..., wall_ms: _Optional[int] = ...) -> None: ...

class JournalState(_message.Message):
    __slots__ = ("next_slot", "published_sequence", "checkpoint_slot", "previous_checkpoint_slot", "intent", "fenced_by_epoch", "checkpoint", "fencer", "wrong_place", "superseded_kept", "superseded_error", "published_ms", "queued_ms", "asked", "left")
    NEXT_SLOT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SLOT_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_CHECKPOINT_SLOT_FIELD_NUMBER: _ClassVar[int]
    INTENT_FIELD_NUMBER: _ClassVar[int]
    FENCED_BY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FENCER_FIELD_NUMBER: _ClassVar[int]
    WRONG_PLACE_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_KEPT_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_ERROR_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_MS_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    next_slot: int
    published_sequence: int
    checkpoint_slot: int
    previous_checkpoint_slot: int
    intent: PublishIntent
    fenced_by_epoch: int
    checkpoint: CheckpointIntent
    fencer: Fencer
    wrong_place: str
    superseded_kept: int
    superseded_error: str
    published_ms: int
    queued_ms: int
    asked: OwnerAsked
    left: LeftPlace
    def __init__(self, next_slot: _Optional[int] = ..., published_sequence: _Optional[int] = ..., checkpoint_slot: _Optional[int] = ..., previous_checkpoint_slot: _Optional[int] = ..., intent: _Optional[_Union[PublishIntent, _Mapping]] = ..., fenced_by_epoch: _Optional[int] = ..., checkpoint: _Optional[_Union[CheckpointIntent, _Mapping]] = ..., fencer: _Optional[_Union[Fencer, _Mapping]] = ..., wrong_place: _Optional[str] = ..., superseded_kept: _Optional[int] = ..., superseded_error: _Optional[str] = ..., published_ms: _Optional[int] = ..., queued_ms: _Optional[int] = ..., asked: _Optional[_Union[OwnerAsked, _Mapping]] = ..., left: _Optional[_Union[LeftPlace, _Mapping]] = ...) -> None: ...

class OwnerAsked(_message.Message):
    __slots__ = ("boot_id", "boot_ms")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_MS_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    boot_ms: int
    def __init__(self, boot_id: _Optional[str] = ..., boot_ms: _Optional[int] = ...) -> None: ...

class LeftPlace(_message.Message):
    __slots__ = ("url", "endpoint_url", "region", "profile", "slot", "left_ms")
    URL_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_URL_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    url: str
    endpoint_url: str
    region: str
    profile: str
    slot: int
    left_ms: int
    def __init__(self, url: _Optional[str] = ..., endpoint_url: _Optional[str] = ..., region: _Optional[str] = ..., profile: _Optional[str] = ..., slot: _Optional[int] = ..., left_ms: _Optional[int] = ...) -> None: ...

class Fencer(_message.Message):
    __slots__ = ("store_id", "host", "since_ms", "moved_to")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    host: str
    since_ms: int
    moved_to: str
    def __init__(self, store_id: _Optional[str] = ..., host: _Optional[str] = ..., since_ms: _Optional[int] = ..., moved_to: _Optional[str] = ...) -> None: ...

class PublishIntent(_message.Message):
    __slots__ = ("slot", "first_sequence", "last_sequence", "attempt")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    slot: int
    first_sequence: int
    last_sequence: int
    attempt: str
    def __init__(self, slot: _Optional[int] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., attempt: _Optional[str] = ...) -> None: ...

class CheckpointIntent(_message.Message):
    __slots__ = ("attempt", "slot", "last_sequence")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    attempt: str
    slot: int
    last_sequence: int
    def __init__(self, attempt: _Optional[str] = ..., slot: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class DirentRecord(_message.Message):
    __slots__ = ("version", "kind", "id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    kind: int
    id: int
    def __init__(self, version: _Optional[int] = ..., kind: _Optional[int] = ..., id: _Optional[int] = ...) -> None: ...

class DirectoryRecord(_message.Message):
    __slots__ = ("version", "id", "parent_id", "name", "inode", "created_ms", "modified_ms", "terminated", "removal", "mode")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_MS_FIELD_NUMBER: _ClassVar[int]
    TERMINATED_FIELD_NUMBER: _ClassVar[int]
    REMOVAL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: int
    parent_id: int
    name: str
    inode: int
    created_ms: int
    modified_ms: int
    terminated: bool
    removal: Removal
    mode: int
    def __init__(self, version: _Optional[int] = ..., id: _Optional[int] = ..., parent_id: _Optional[int] = ..., name: _Optional[str] = ..., inode: _Optional[int] = ..., created_ms: _Optional[int] = ..., modified_ms: _Optional[int] = ..., terminated: _Optional[bool] = ..., removal: _Optional[_Union[Removal, _Mapping]] = ..., mode: _Optional[int] = ...) -> None: ...

class LocationRecord(_message.Message):
    __slots__ = ("version", "id", "url", "endpoint_url", "region", "profile", "writable", "create_only_put", "create_only_multipart", "verifies_crc32c", "from_journal", "keeps_objects", "adoption", "max_object_bytes", "archive")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_URL_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    CREATE_ONLY_PUT_FIELD_NUMBER: _ClassVar[int]
    CREATE_ONLY_MULTIPART_FIELD_NUMBER: _ClassVar[int]
    VERIFIES_CRC32C_FIELD_NUMBER: _ClassVar[int]
    FROM_JOURNAL_FIELD_NUMBER: _ClassVar[int]
    KEEPS_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    ADOPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_OBJECT_BYTES_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: int
    url: str
    endpoint_url: str
    region: str
    profile: str
    writable: bool
    create_only_put: bool
    create_only_multipart: bool
    verifies_crc32c: bool
    from_journal: bool
    keeps_objects: bool
    adoption: AdoptionTimer
    max_object_bytes: int
    archive: bool
    def __init__(self, version: _Optional[int] = ..., id: _Optional[int] = ..., url: _Optional[str] = ..., endpoint_url: _Optional[str] = ..., region: _Optional[str] = ..., profile: _Optional[str] = ..., writable: _Optional[bool] = ..., create_only_put: _Optional[bool] = ..., create_only_multipart: _Optional[bool] = ..., verifies_crc32c: _Optional[bool] = ..., from_journal: _Optional[bool] = ..., keeps_objects: _Optional[bool] = ..., adoption: _Optional[_Union[AdoptionTimer, _Mapping]] = ..., max_object_bytes: _Optional[int] = ..., archive: _Optional[bool] = ...) -> None: ...

class AdoptionTimer(_message.Message):
    __slots__ = ("every_s", "layout", "directory_id", "last_ms", "accept_loss")
    EVERY_S_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    every_s: int
    layout: str
    directory_id: int
    last_ms: int
    accept_loss: bool
    def __init__(self, every_s: _Optional[int] = ..., layout: _Optional[str] = ..., directory_id: _Optional[int] = ..., last_ms: _Optional[int] = ..., accept_loss: _Optional[bool] = ...) -> None: ...

class PolicyRecord(_message.Message):
    __slots__ = ("version", "target_id", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGET_ID_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    version: int
    target_id: int
    settings: _containers.ScalarMap[str, str]
    def __init__(self, version: _Optional[int] = ..., target_id: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ...) -> None: ...

class IntentRecord(_message.Message):
    __slots__ = ("version", "attempt", "location_id", "name", "segment_id", "start_offset", "end_offset", "created_ms", "store_epoch", "upload_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    attempt: str
    location_id: int
    name: str
    segment_id: int
    start_offset: int
    end_offset: int
    created_ms: int
    store_epoch: int
    upload_id: str
    def __init__(self, version: _Optional[int] = ..., attempt: _Optional[str] = ..., location_id: _Optional[int] = ..., name: _Optional[str] = ..., segment_id: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., created_ms: _Optional[int] = ..., store_epoch: _Optional[int] = ..., upload_id: _Optional[str] = ...) -> None: ...

class GarbageRecord(_message.Message):
    __slots__ = ("version", "sequence", "due_ms", "tier", "location_id", "name", "length", "after_sequence", "attempts", "last_error", "object_id")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    LOCATION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    OBJECT_ID_FIELD_NUMBER: _ClassVar[int]
    version: int
    sequence: int
    due_ms: int
    tier: int
    location_id: int
    name: str
    length: int
    after_sequence: int
    attempts: int
    last_error: str
    object_id: int
    def __init__(self, version: _Optional[int] = ..., sequence: _Optional[int] = ..., due_ms: _Optional[int] = ..., tier: _Optional[int] = ..., location_id: _Optional[int] = ..., name: _Optional[str] = ..., length: _Optional[int] = ..., after_sequence: _Optional[int] = ..., attempts: _Optional[int] = ..., last_error: _Optional[str] = ..., object_id: _Optional[int] = ...) -> None: ...

class EntryRun(_message.Message):
    __slots__ = ("version", "first_entry_id", "payload_start", "lengths", "stored_offset")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_START_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    STORED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    version: int
    first_entry_id: int
    payload_start: int
    lengths: _containers.RepeatedScalarFieldContainer[int]
    stored_offset: int
    def __init__(self, version: _Optional[int] = ..., first_entry_id: _Optional[int] = ..., payload_start: _Optional[int] = ..., lengths: _Optional[_Iterable[int]] = ..., stored_offset: _Optional[int] = ...) -> None: ...

class EntriesPart(_message.Message):
    __slots__ = ("version", "store_id", "segment_id", "runs", "path")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    version: int
    store_id: str
    segment_id: int
    runs: _containers.RepeatedCompositeFieldContainer[EntryRun]
    path: str
    def __init__(self, version: _Optional[int] = ..., store_id: _Optional[str] = ..., segment_id: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[EntryRun, _Mapping]]] = ..., path: _Optional[str] = ...) -> None: ...

class RequestRecord(_message.Message):
    __slots__ = ("version", "id", "verb", "path", "state", "done_bytes", "total_bytes", "error_kind", "error", "options", "result", "created_ms", "item", "remedy", "done_items", "total_items", "noun")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_KIND_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    DONE_ITEMS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ITEMS_FIELD_NUMBER: _ClassVar[int]
    NOUN_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: int
    verb: str
    path: str
    state: int
    done_bytes: int
    total_bytes: int
    error_kind: str
    error: str
    options: _containers.ScalarMap[str, str]
    result: str
    created_ms: int
    item: str
    remedy: str
    done_items: int
    total_items: int
    noun: str
    def __init__(self, version: _Optional[int] = ..., id: _Optional[int] = ..., verb: _Optional[str] = ..., path: _Optional[str] = ..., state: _Optional[int] = ..., done_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., error_kind: _Optional[str] = ..., error: _Optional[str] = ..., options: _Optional[_Mapping[str, str]] = ..., result: _Optional[str] = ..., created_ms: _Optional[int] = ..., item: _Optional[str] = ..., remedy: _Optional[str] = ..., done_items: _Optional[int] = ..., total_items: _Optional[int] = ..., noun: _Optional[str] = ...) -> None: ...

class FailureRecord(_message.Message):
    __slots__ = ("version", "what", "name", "bytes", "attempts", "since_ms", "next_try_ms", "error_kind", "error")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRY_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_KIND_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    version: int
    what: str
    name: str
    bytes: int
    attempts: int
    since_ms: int
    next_try_ms: int
    error_kind: str
    error: str
    def __init__(self, version: _Optional[int] = ..., what: _Optional[str] = ..., name: _Optional[str] = ..., bytes: _Optional[int] = ..., attempts: _Optional[int] = ..., since_ms: _Optional[int] = ..., next_try_ms: _Optional[int] = ..., error_kind: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class BatchRecord(_message.Message):
    __slots__ = ("version", "application", "batch", "committed_ms", "segment_ids", "state", "job", "first", "sequence", "writer")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    version: int
    application: str
    batch: str
    committed_ms: int
    segment_ids: _containers.RepeatedScalarFieldContainer[int]
    state: int
    job: str
    first: int
    sequence: int
    writer: str
    def __init__(self, version: _Optional[int] = ..., application: _Optional[str] = ..., batch: _Optional[str] = ..., committed_ms: _Optional[int] = ..., segment_ids: _Optional[_Iterable[int]] = ..., state: _Optional[int] = ..., job: _Optional[str] = ..., first: _Optional[int] = ..., sequence: _Optional[int] = ..., writer: _Optional[str] = ...) -> None: ...

class AppendKeyRecord(_message.Message):
    __slots__ = ("version", "segment_id", "start", "end", "crc32c", "seal", "committed_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    segment_id: int
    start: int
    end: int
    crc32c: int
    seal: bool
    committed_ms: int
    def __init__(self, version: _Optional[int] = ..., segment_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., crc32c: _Optional[int] = ..., seal: _Optional[bool] = ..., committed_ms: _Optional[int] = ...) -> None: ...

class FollowedRange(_message.Message):
    __slots__ = ("version", "path", "device", "inode", "file_start", "file_end", "segment_start", "head_length", "head_crc32c", "tail_length", "tail_crc32c", "modified_ns", "committed_ms", "gap", "unended", "late", "cursor", "sender")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    FILE_START_FIELD_NUMBER: _ClassVar[int]
    FILE_END_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_START_FIELD_NUMBER: _ClassVar[int]
    HEAD_LENGTH_FIELD_NUMBER: _ClassVar[int]
    HEAD_CRC32C_FIELD_NUMBER: _ClassVar[int]
    TAIL_LENGTH_FIELD_NUMBER: _ClassVar[int]
    TAIL_CRC32C_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_NS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    UNENDED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    version: int
    path: bytes
    device: int
    inode: int
    file_start: int
    file_end: int
    segment_start: int
    head_length: int
    head_crc32c: int
    tail_length: int
    tail_crc32c: int
    modified_ns: int
    committed_ms: int
    gap: str
    unended: bool
    late: bool
    cursor: str
    sender: str
    def __init__(self, version: _Optional[int] = ..., path: _Optional[bytes] = ..., device: _Optional[int] = ..., inode: _Optional[int] = ..., file_start: _Optional[int] = ..., file_end: _Optional[int] = ..., segment_start: _Optional[int] = ..., head_length: _Optional[int] = ..., head_crc32c: _Optional[int] = ..., tail_length: _Optional[int] = ..., tail_crc32c: _Optional[int] = ..., modified_ns: _Optional[int] = ..., committed_ms: _Optional[int] = ..., gap: _Optional[str] = ..., unended: _Optional[bool] = ..., late: _Optional[bool] = ..., cursor: _Optional[str] = ..., sender: _Optional[str] = ...) -> None: ...

class FollowedSource(_message.Message):
    __slots__ = ("version", "path", "below", "directory_id", "begun_ms", "background", "sender")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    BEGUN_MS_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    version: int
    path: bytes
    below: str
    directory_id: int
    begun_ms: int
    background: bool
    sender: str
    def __init__(self, version: _Optional[int] = ..., path: _Optional[bytes] = ..., below: _Optional[str] = ..., directory_id: _Optional[int] = ..., begun_ms: _Optional[int] = ..., background: _Optional[bool] = ..., sender: _Optional[str] = ...) -> None: ...

class BatchMarker(_message.Message):
    __slots__ = ("version", "store_id", "store_epoch", "job", "application", "batch", "written_ms", "committed", "forgotten")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    version: int
    store_id: str
    store_epoch: int
    job: str
    application: str
    batch: str
    written_ms: int
    committed: _containers.RepeatedCompositeFieldContainer[VersionRange]
    forgotten: int
    def __init__(self, version: _Optional[int] = ..., store_id: _Optional[str] = ..., store_epoch: _Optional[int] = ..., job: _Optional[str] = ..., application: _Optional[str] = ..., batch: _Optional[str] = ..., written_ms: _Optional[int] = ..., committed: _Optional[_Iterable[_Union[VersionRange, _Mapping]]] = ..., forgotten: _Optional[int] = ...) -> None: ...

class VersionRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class BatchManifest(_message.Message):
    __slots__ = ("version", "store_id", "store_epoch", "job", "application", "batch", "written_ms", "sealed", "part", "parts", "segments")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    APPLICATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    store_id: str
    store_epoch: int
    job: str
    application: str
    batch: str
    written_ms: int
    sealed: bool
    part: int
    parts: int
    segments: _containers.RepeatedCompositeFieldContainer[UploadedSegment]
    def __init__(self, version: _Optional[int] = ..., store_id: _Optional[str] = ..., store_epoch: _Optional[int] = ..., job: _Optional[str] = ..., application: _Optional[str] = ..., batch: _Optional[str] = ..., written_ms: _Optional[int] = ..., sealed: _Optional[bool] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[UploadedSegment, _Mapping]]] = ...) -> None: ...

class UploadedSegment(_message.Message):
    __slots__ = ("segment_id", "name", "length", "objects")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    name: str
    length: int
    objects: _containers.RepeatedCompositeFieldContainer[UploadedObject]
    def __init__(self, segment_id: _Optional[int] = ..., name: _Optional[str] = ..., length: _Optional[int] = ..., objects: _Optional[_Iterable[_Union[UploadedObject, _Mapping]]] = ...) -> None: ...

class UploadedObject(_message.Message):
    __slots__ = ("name", "length", "crc32c")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    name: str
    length: int
    crc32c: int
    def __init__(self, name: _Optional[str] = ..., length: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class LedgerRecord(_message.Message):
    __slots__ = ("version", "ledger_id", "segment_id", "entries", "bytes", "timestamp_ms", "offload", "elsewhere")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    version: int
    ledger_id: int
    segment_id: int
    entries: int
    bytes: int
    timestamp_ms: int
    offload: OffloadContext
    elsewhere: OffloadContext
    def __init__(self, version: _Optional[int] = ..., ledger_id: _Optional[int] = ..., segment_id: _Optional[int] = ..., entries: _Optional[int] = ..., bytes: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., offload: _Optional[_Union[OffloadContext, _Mapping]] = ..., elsewhere: _Optional[_Union[OffloadContext, _Mapping]] = ...) -> None: ...

class OffloadContext(_message.Message):
    __slots__ = ("uid_msb", "uid_lsb", "complete", "local_deleted", "timestamp_ms", "driver_name", "driver_properties")
    class DriverPropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    UID_MSB_FIELD_NUMBER: _ClassVar[int]
    UID_LSB_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_DELETED_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DRIVER_NAME_FIELD_NUMBER: _ClassVar[int]
    DRIVER_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    uid_msb: int
    uid_lsb: int
    complete: bool
    local_deleted: bool
    timestamp_ms: int
    driver_name: str
    driver_properties: _containers.ScalarMap[str, str]
    def __init__(self, uid_msb: _Optional[int] = ..., uid_lsb: _Optional[int] = ..., complete: _Optional[bool] = ..., local_deleted: _Optional[bool] = ..., timestamp_ms: _Optional[int] = ..., driver_name: _Optional[str] = ..., driver_properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TouchRecord(_message.Message):
    __slots__ = ("version", "parent_inode", "name", "inode", "segment_id", "policies")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARENT_INODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    version: int
    parent_inode: int
    name: str
    inode: int
    segment_id: int
    policies: bool
    def __init__(self, version: _Optional[int] = ..., parent_inode: _Optional[int] = ..., name: _Optional[str] = ..., inode: _Optional[int] = ..., segment_id: _Optional[int] = ..., policies: _Optional[bool] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("sequence", "owner_begins", "segment", "segment_removed", "directory", "directory_removed", "cold_link", "cold_unlink", "location", "policy", "batch", "ledger", "counters", "garbage", "checksums", "object", "pack_link", "object_moved")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OWNER_BEGINS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_REMOVED_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_REMOVED_FIELD_NUMBER: _ClassVar[int]
    COLD_LINK_FIELD_NUMBER: _ClassVar[int]
    COLD_UNLINK_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    GARBAGE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    PACK_LINK_FIELD_NUMBER: _ClassVar[int]
    OBJECT_MOVED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    owner_begins: OwnerBegins
    segment: SegmentRecord
    segment_removed: int
    directory: DirectoryRecord
    directory_removed: int
    cold_link: ColdLink
    cold_unlink: ColdUnlink
    location: LocationRecord
    policy: PolicyRecord
    batch: BatchRecord
    ledger: LedgerRecord
    counters: Counters
    garbage: GarbageRecord
    checksums: ObjectChecksums
    object: ObjectRecord
    pack_link: PackLink
    object_moved: ObjectRecord
    def __init__(self, sequence: _Optional[int] = ..., owner_begins: _Optional[_Union[OwnerBegins, _Mapping]] = ..., segment: _Optional[_Union[SegmentRecord, _Mapping]] = ..., segment_removed: _Optional[int] = ..., directory: _Optional[_Union[DirectoryRecord, _Mapping]] = ..., directory_removed: _Optional[int] = ..., cold_link: _Optional[_Union[ColdLink, _Mapping]] = ..., cold_unlink: _Optional[_Union[ColdUnlink, _Mapping]] = ..., location: _Optional[_Union[LocationRecord, _Mapping]] = ..., policy: _Optional[_Union[PolicyRecord, _Mapping]] = ..., batch: _Optional[_Union[BatchRecord, _Mapping]] = ..., ledger: _Optional[_Union[LedgerRecord, _Mapping]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ..., garbage: _Optional[_Union[GarbageRecord, _Mapping]] = ..., checksums: _Optional[_Union[ObjectChecksums, _Mapping]] = ..., object: _Optional[_Union[ObjectRecord, _Mapping]] = ..., pack_link: _Optional[_Union[PackLink, _Mapping]] = ..., object_moved: _Optional[_Union[ObjectRecord, _Mapping]] = ...) -> None: ...

class OwnerBegins(_message.Message):
    __slots__ = ("store_epoch", "store_id", "wall_ms", "host")
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    store_epoch: int
    store_id: str
    wall_ms: int
    host: str
    def __init__(self, store_epoch: _Optional[int] = ..., store_id: _Optional[str] = ..., wall_ms: _Optional[int] = ..., host: _Optional[str] = ...) -> None: ...

class ColdLink(_message.Message):
    __slots__ = ("segment_id", "chunks", "objects", "checksums")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    chunks: _containers.RepeatedCompositeFieldContainer[ChunkRecord]
    objects: _containers.RepeatedCompositeFieldContainer[ObjectRecord]
    checksums: _containers.RepeatedCompositeFieldContainer[ChecksumRun]
    def __init__(self, segment_id: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[ChunkRecord, _Mapping]]] = ..., objects: _Optional[_Iterable[_Union[ObjectRecord, _Mapping]]] = ..., checksums: _Optional[_Iterable[_Union[ChecksumRun, _Mapping]]] = ...) -> None: ...

class PackLink(_message.Message):
    __slots__ = ("object", "checksums", "segments", "links")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    object: ObjectRecord
    checksums: _containers.RepeatedCompositeFieldContainer[ChecksumRun]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentRecord]
    links: _containers.RepeatedCompositeFieldContainer[ColdLink]
    def __init__(self, object: _Optional[_Union[ObjectRecord, _Mapping]] = ..., checksums: _Optional[_Iterable[_Union[ChecksumRun, _Mapping]]] = ..., segments: _Optional[_Iterable[_Union[SegmentRecord, _Mapping]]] = ..., links: _Optional[_Iterable[_Union[ColdLink, _Mapping]]] = ...) -> None: ...

class ObjectChecksums(_message.Message):
    __slots__ = ("object", "runs")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    object: ObjectRecord
    runs: _containers.RepeatedCompositeFieldContainer[ChecksumRun]
    def __init__(self, object: _Optional[_Union[ObjectRecord, _Mapping]] = ..., runs: _Optional[_Iterable[_Union[ChecksumRun, _Mapping]]] = ...) -> None: ...

class ColdUnlink(_message.Message):
    __slots__ = ("segment_id", "start_offsets", "objects_released")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    START_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    start_offsets: _containers.RepeatedScalarFieldContainer[int]
    objects_released: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, segment_id: _Optional[int] = ..., start_offsets: _Optional[_Iterable[int]] = ..., objects_released: _Optional[_Iterable[int]] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ("next_id",)
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    next_id: int
    def __init__(self, next_id: _Optional[int] = ...) -> None: ...

class JournalEntry(_message.Message):
    __slots__ = ("version", "store_id", "store_epoch", "slot", "attempt", "first_sequence", "last_sequence", "written_ms", "changes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    version: int
    store_id: str
    store_epoch: int
    slot: int
    attempt: str
    first_sequence: int
    last_sequence: int
    written_ms: int
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, version: _Optional[int] = ..., store_id: _Optional[str] = ..., store_epoch: _Optional[int] = ..., slot: _Optional[int] = ..., attempt: _Optional[str] = ..., first_sequence: _Optional[int] = ..., last_sequence: _Optional[int] = ..., written_ms: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class CheckpointPart(_message.Message):
    __slots__ = ("version", "attempt", "index", "changes", "entries")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    version: int
    attempt: str
    index: int
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    entries: _containers.RepeatedCompositeFieldContainer[JournalEntry]
    def __init__(self, version: _Optional[int] = ..., attempt: _Optional[str] = ..., index: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., entries: _Optional[_Iterable[_Union[JournalEntry, _Mapping]]] = ...) -> None: ...

class CheckpointLevel(_message.Message):
    __slots__ = ("slot", "attempt", "has_entries", "last_sequence", "part_crc32c", "part_bytes", "copied", "entry_bytes")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HAS_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PART_CRC32C_FIELD_NUMBER: _ClassVar[int]
    PART_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    ENTRY_BYTES_FIELD_NUMBER: _ClassVar[int]
    slot: int
    attempt: str
    has_entries: bool
    last_sequence: int
    part_crc32c: _containers.RepeatedScalarFieldContainer[int]
    part_bytes: _containers.RepeatedScalarFieldContainer[int]
    copied: _containers.RepeatedScalarFieldContainer[bool]
    entry_bytes: int
    def __init__(self, slot: _Optional[int] = ..., attempt: _Optional[str] = ..., has_entries: _Optional[bool] = ..., last_sequence: _Optional[int] = ..., part_crc32c: _Optional[_Iterable[int]] = ..., part_bytes: _Optional[_Iterable[int]] = ..., copied: _Optional[_Iterable[bool]] = ..., entry_bytes: _Optional[int] = ...) -> None: ...

class CheckpointManifest(_message.Message):
    __slots__ = ("version", "store_id", "store_epoch", "slot", "attempt", "last_sequence", "parts", "part_crc32c", "written_ms", "next_id", "levels", "state_rows", "entry_bytes", "level_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    PART_CRC32C_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    STATE_ROWS_FIELD_NUMBER: _ClassVar[int]
    ENTRY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEVEL_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: int
    store_id: str
    store_epoch: int
    slot: int
    attempt: str
    last_sequence: int
    parts: int
    part_crc32c: _containers.RepeatedScalarFieldContainer[int]
    written_ms: int
    next_id: int
    levels: _containers.RepeatedCompositeFieldContainer[CheckpointLevel]
    state_rows: int
    entry_bytes: int
    level_bytes: int
    def __init__(self, version: _Optional[int] = ..., store_id: _Optional[str] = ..., store_epoch: _Optional[int] = ..., slot: _Optional[int] = ..., attempt: _Optional[str] = ..., last_sequence: _Optional[int] = ..., parts: _Optional[int] = ..., part_crc32c: _Optional[_Iterable[int]] = ..., written_ms: _Optional[int] = ..., next_id: _Optional[int] = ..., levels: _Optional[_Iterable[_Union[CheckpointLevel, _Mapping]]] = ..., state_rows: _Optional[int] = ..., entry_bytes: _Optional[int] = ..., level_bytes: _Optional[int] = ...) -> None: ...

class PackIndex(_message.Message):
    __slots__ = ("version", "store_id", "store_epoch", "attempt", "created_ms", "entries", "appended")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    version: int
    store_id: str
    store_epoch: int
    attempt: str
    created_ms: int
    entries: _containers.RepeatedCompositeFieldContainer[PackEntry]
    appended: bool
    def __init__(self, version: _Optional[int] = ..., store_id: _Optional[str] = ..., store_epoch: _Optional[int] = ..., attempt: _Optional[str] = ..., created_ms: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[PackEntry, _Mapping]]] = ..., appended: _Optional[bool] = ...) -> None: ...

class PackEntry(_message.Message):
    __slots__ = ("segment_id", "path", "start_offset", "length", "object_offset", "crc32c")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    OBJECT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    path: str
    start_offset: int
    length: int
    object_offset: int
    crc32c: int
    def __init__(self, segment_id: _Optional[int] = ..., path: _Optional[str] = ..., start_offset: _Optional[int] = ..., length: _Optional[int] = ..., object_offset: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class DumpRow(_message.Message):
    __slots__ = ("database", "key", "value")
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    database: bytes
    key: bytes
    value: bytes
    def __init__(self, database: _Optional[bytes] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class DumpPart(_message.Message):
    __slots__ = ("version", "store_id", "index", "last", "written_ms", "rows")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    version: int
    store_id: str
    index: int
    last: bool
    written_ms: int
    rows: _containers.RepeatedCompositeFieldContainer[DumpRow]
    def __init__(self, version: _Optional[int] = ..., store_id: _Optional[str] = ..., index: _Optional[int] = ..., last: _Optional[bool] = ..., written_ms: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[DumpRow, _Mapping]]] = ...) -> None: ...

class SegmentDump(_message.Message):
    __slots__ = ("version", "store_id", "path", "written_ms", "changes", "store_epoch", "sequence")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    STORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    store_id: str
    path: str
    written_ms: int
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    store_epoch: int
    sequence: int
    def __init__(self, version: _Optional[int] = ..., store_id: _Optional[str] = ..., path: _Optional[str] = ..., written_ms: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., store_epoch: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class SumsRecord(_message.Message):
    __slots__ = ("version", "transaction_id", "values", "counted_tables", "counted_key", "oldest_ms")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    COUNTED_TABLES_FIELD_NUMBER: _ClassVar[int]
    COUNTED_KEY_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    transaction_id: int
    values: _containers.RepeatedScalarFieldContainer[int]
    counted_tables: int
    counted_key: bytes
    oldest_ms: int
    def __init__(self, version: _Optional[int] = ..., transaction_id: _Optional[int] = ..., values: _Optional[_Iterable[int]] = ..., counted_tables: _Optional[int] = ..., counted_key: _Optional[bytes] = ..., oldest_ms: _Optional[int] = ...) -> None: ...
