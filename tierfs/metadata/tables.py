"""The databases of the LMDB environment and the record each holds. records.proto documents both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.batch_records import BatchRecord
from tierfs.metadata.codec import Codec
from tierfs.metadata.ledger_records import EntryRun, LedgerRecord
from tierfs.metadata.records import (
    ChecksumRun,
    ChunkRecord,
    DirectoryRecord,
    DirentRecord,
    FailureRecord,
    GarbageRecord,
    IntentRecord,
    LocationRecord,
    ObjectRecord,
    PolicyRecord,
    Record,
    RequestRecord,
    SegmentRecord,
    StoreRecord,
    TouchRecord,
)

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """One LMDB database."""

    name: bytes
    codec: Codec[R]


STORE = Table(b"store", Codec(StoreRecord, pb.StoreRecord))
DIRENTS = Table(b"dirents", Codec(DirentRecord, pb.DirentRecord))
DIRECTORIES = Table(b"directories", Codec(DirectoryRecord, pb.DirectoryRecord))
LOCATIONS = Table(b"locations", Codec(LocationRecord, pb.LocationRecord))
SEGMENTS = Table(b"segments", Codec(SegmentRecord, pb.SegmentRecord))
CHUNKS = Table(b"chunks", Codec(ChunkRecord, pb.ChunkRecord))
OBJECTS = Table(b"objects", Codec(ObjectRecord, pb.ObjectRecord))
CHECKSUMS = Table(b"checksums", Codec(ChecksumRun, pb.ChecksumRun))
POLICIES = Table(b"policies", Codec(PolicyRecord, pb.PolicyRecord))
INTENTS = Table(b"intents", Codec(IntentRecord, pb.IntentRecord))
GARBAGE = Table(b"garbage", Codec(GarbageRecord, pb.GarbageRecord))
REQUESTS = Table(b"requests", Codec(RequestRecord, pb.RequestRecord))
FAILURES = Table(b"troubles", Codec(FailureRecord, pb.FailureRecord))
ENTRIES = Table(b"entries", Codec(EntryRun, pb.EntryRun))
LEDGERS = Table(b"ledgers", Codec(LedgerRecord, pb.LedgerRecord))
BATCHES = Table(b"batches", Codec(BatchRecord, pb.BatchRecord))
TOUCHES = Table(b"changes", Codec(TouchRecord, pb.TouchRecord))

OUTBOX_NAME = b"outbox"
"""Values are serialized Change messages; journal.py reads them."""

RESERVED_NAMES = (ENTRIES.name, BATCHES.name, LEDGERS.name)
"""Created with the store, so that later versions need no migration."""

ALL_NAMES = (
    *(table.name for table in (STORE, DIRENTS, DIRECTORIES, LOCATIONS, SEGMENTS, CHUNKS, OBJECTS, CHECKSUMS)),
    *(table.name for table in (POLICIES, INTENTS, GARBAGE, TOUCHES, REQUESTS, FAILURES)),
    OUTBOX_NAME,
    *RESERVED_NAMES,
)
