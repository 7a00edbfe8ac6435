"""The databases of the LMDB environment, their records and their keys. records.proto documents both.

Keys are big-endian, so that byte order is number order. All fit LMDB's 511 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Generic

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.types import SegmentId, Tier
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.append_key_record import AppendKeyRecord
from tierfs.engine.metadata.batch_records import BatchRecord
from tierfs.engine.metadata.codec import Codec, R
from tierfs.engine.metadata.followed_range import FollowedRange, FollowedSource
from tierfs.engine.metadata.holder_records import FailureRecord, RequestRecord
from tierfs.engine.metadata.ledger_records import EntryRun, LedgerRecord
from tierfs.engine.metadata.record_parts import PLACED_VERSION
from tierfs.engine.metadata.records import (
    ChecksumRun,
    ChunkRecord,
    DirectoryRecord,
    DirentRecord,
    GarbageRecord,
    IntentRecord,
    LocationRecord,
    ObjectRecord,
    PolicyRecord,
    SegmentRecord,
    StoreRecord,
    TouchRecord,
)

# Values are serialized Change messages; changes.py reads them.
OUTBOX_NAME = b"outbox"

# Values are the framed entries of slots after the newest checkpoint, so that the next one need not fetch them.
PUBLISHED_NAME = b"published"

_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_CHUNK = struct.Struct(">QBQ")
_PAIR = struct.Struct(">QQ")

U64_BYTES = _U64.size
MAX_U64 = 2**64 - 1

# The keys are made by the structs themselves: a commit makes dozens.
# A key of `locations`.
u32: Callable[[int], bytes] = _U32.pack
# A key of any database ordered by one number.
u64: Callable[[int], bytes] = _U64.pack
# A key of `chunks`: a segment's id, a tier and a start offset.
chunk: Callable[[int, Tier, int], bytes] = _CHUNK.pack
# A key of `checksums`, `garbage`, `entries` and `ledgers`.
pair: Callable[[int, int], bytes] = _PAIR.pack


def _by_id(record: Any) -> bytes:
    return u64(record.id)


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """One LMDB database."""

    name: bytes
    codec: Codec[R]
    change: str = ""
    """Field of a Change that journals a record as it is; empty for tables that no such field does."""
    key: Callable[[R], bytes] = _by_id


STORE = Table(b"store", Codec(StoreRecord, pb.StoreRecord))
DIRENTS = Table(b"dirents", Codec(DirentRecord, pb.DirentRecord))
DIRECTORIES = Table(b"directories", Codec(DirectoryRecord, pb.DirectoryRecord), "directory")
LOCATIONS = Table(b"locations", Codec(LocationRecord, pb.LocationRecord), "location", lambda record: u32(record.id))
SEGMENTS = Table(b"segments", Codec(SegmentRecord, pb.SegmentRecord))
CHUNKS = Table(b"chunks", Codec(ChunkRecord, pb.ChunkRecord))
OBJECTS = Table(b"objects", Codec(ObjectRecord, pb.ObjectRecord, PLACED_VERSION), "object")
CHECKSUMS = Table(b"checksums", Codec(ChecksumRun, pb.ChecksumRun))
POLICIES = Table(b"policies", Codec(PolicyRecord, pb.PolicyRecord), "policy", lambda record: u64(record.target_id))
INTENTS = Table(b"intents", Codec(IntentRecord, pb.IntentRecord))
GARBAGE = Table(b"garbage", Codec(GarbageRecord, pb.GarbageRecord), "garbage")
REQUESTS = Table(b"requests", Codec(RequestRecord, pb.RequestRecord))
FAILURES = Table(b"troubles", Codec(FailureRecord, pb.FailureRecord))
ENTRIES = Table(b"entries", Codec(EntryRun, pb.EntryRun))
LEDGERS = Table(b"ledgers", Codec(LedgerRecord, pb.LedgerRecord), "ledger", lambda record: u64(record.segment_id))
BATCHES = Table(b"batches", Codec(BatchRecord, pb.BatchRecord))
APPEND_KEYS = Table(b"appendkeys", Codec(AppendKeyRecord, pb.AppendKeyRecord))
FOLLOWED = Table(b"followed", Codec(FollowedRange, pb.FollowedRange))
FOLLOWED_SOURCES = Table(FOLLOWED.name, Codec(FollowedSource, pb.FollowedSource))
TOUCHES = Table(b"changes", Codec(TouchRecord, pb.TouchRecord))


# Created with the store, so that later versions need no migration.
RESERVED_NAMES = (ENTRIES.name, BATCHES.name, LEDGERS.name)

ALL_NAMES = (
    *(table.name for table in (STORE, DIRENTS, DIRECTORIES, LOCATIONS, SEGMENTS, CHUNKS, OBJECTS, CHECKSUMS)),
    *(table.name for table in (POLICIES, INTENTS, GARBAGE, TOUCHES, REQUESTS, FAILURES)),
    OUTBOX_NAME,
    *RESERVED_NAMES,
)

# Added since: made in a store that lacks them, as soon as it is opened to write.
LATER_NAMES = (APPEND_KEYS.name, FOLLOWED.name, PUBLISHED_NAME)


def read_u64(key: bytes) -> int:
    """Return the first number of a key."""
    return int(_U64.unpack_from(key)[0])


def read_chunk(key: bytes) -> tuple[SegmentId, Tier, int]:
    """Return what a key of `chunks` was made of."""
    segment_id, tier, start_offset = _CHUNK.unpack(key)
    return SegmentId(segment_id), Tier(tier), start_offset


def chunk_prefix(segment_id: int, tier: Tier) -> bytes:
    """Return the prefix of all keys of one chain."""
    return chunk(segment_id, tier, 0)[: U64_BYTES + 1]


def dirent(parent_id: int, name: str) -> bytes:
    """Return a key of `dirents`."""
    return _U64.pack(parent_id) + name.encode()


def dirent_name(key: bytes) -> str:
    """Return the name in a key of `dirents`."""
    return key[U64_BYTES:].decode()
