"""Markers `uploads/<job>/committed-…`: proof beside a job's objects that the journal names its commit.

A recovery that has nothing but objects links only the jobs that have one: a manifest precedes its commit and proves
nothing. Crash order: slot created and confirmed as ours -> markers of the batches in it -> `published_sequence` moves.
So whoever was told of a commit, and whatever consolidates or deletes its objects, comes after the marker; a crash in
between repeats the slot with its markers, and a recovery writes those of the entries after its checkpoint.

Each marker holds all versions of its application that the journal names by then, so one marker of each application
is kept when the objects of its jobs are gone: that of the last commit.
"""

from __future__ import annotations

import hashlib

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import object_names
from tierfs.base.words.errors import AlreadyExists, DataLoss
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.validate import ATTEMPT_KEY
from tierfs.engine.journal.objects import read_parsed
from tierfs.engine.metadata import batches, frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.batch_records import MAX_BATCH, BatchRecord
from tierfs.engine.metadata.batches import Versions
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker, as its name describes it."""

    job: str
    application: str
    """SHA-256 of its name, in hexadecimal digits."""
    version: int
    epoch: int
    """Of the owner whose journal names the commit."""

    def is_of(self, application: str, version: int) -> bool:
        """Return whether it marks this version."""
        return (self.application, self.version) == (_hash(application), version)


def parse_name(name: str) -> Marker | None:
    """Return the marker of an object's name; None for other names."""
    match = object_names.MARKER.fullmatch(name)
    if match is None:
        return None
    return Marker(match["job"], match["application"], int(match["version"]), int(match["epoch"]))


def marker_name(record: BatchRecord, epoch: int) -> str:
    """Return the name of the marker of a committed batch."""
    return f"uploads/{record.job}/committed-{_hash(record.application)}-{record.number:020d}-e{epoch}"


def put(metadata: MetadataStore, storage: ChunkStorage, record: BatchRecord) -> None:
    """Write the marker of a batch whose commit the journal names, create-only. Idempotent; raises storage errors."""
    with metadata.read() as txn:
        store = txn.store
        known = batches.versions(txn, record.application, max(record.sequence, store.journal.published_sequence))
        now_ms = metadata.clock.now_ms()
    marker = pb.BatchMarker(
        version=RECORD_VERSION,
        store_id=store.store_id,
        store_epoch=store.store_epoch,
        job=record.job,
        application=record.application,
        batch=record.batch,
        written_ms=now_ms,
        committed=[pb.VersionRange(first=first, last=last) for first, last in known.ranges],
        forgotten=known.forgotten,
    )
    name = marker_name(record, store.store_epoch)
    try:
        storage.put(name, BufferSource(frames.frame(marker)), metadata={ATTEMPT_KEY: record.job})
    except AlreadyExists:  # by this owner, before a crash: the name tells all that a recovery needs to link the job
        read_marker(storage, name)


def put_all(metadata: MetadataStore, storage: ChunkStorage, *, after_sequence: int) -> None:
    """Write the markers that a dead owner may have left out, those of commits after its last checkpoint."""
    with metadata.read() as txn:
        records = batches.unfolded(txn, after_sequence)
    for record in records:
        if record.job and not _is_marked(storage, record):
            put(metadata, storage, record)


def _is_marked(storage: ChunkStorage, record: BatchRecord) -> bool:
    """Return whether a batch has a marker of any owner."""
    markers = (parse_name(stored.name) for stored in storage.list(f"uploads/{record.job}/committed-"))
    return any(marker is not None and marker.is_of(record.application, record.number) for marker in markers)


def read_marker(storage: ChunkStorage, name: str) -> tuple[str, str, Versions]:
    """Return store and application of a marker, and the versions that it holds. Raises DataLoss for a damaged one."""
    message = read_parsed(storage, name, frames.parse_batch_marker)
    record = BatchRecord(application=message.application, batch=message.batch)
    record.check()
    marker = parse_name(name)
    ranges = tuple((versions.first, versions.last) for versions in message.committed)
    named = marker is not None and marker.is_of(record.application, record.number)
    bounded = all(first <= last <= MAX_BATCH for first, last in ranges) and message.forgotten <= MAX_BATCH
    if not (named and bounded):
        raise DataLoss(f"{printable(name)} contradicts its name, or contains impossible versions")
    return message.store_id, record.application, Versions(ranges, message.forgotten)


def is_needed(txn: ReadTransaction, marker: Marker) -> bool:
    """Return whether the marker of a job without objects still has to be there: no later commit of its application has
    one. A write without an application is never asked for again."""
    if marker.application == _hash(batches.of_job(marker.job)):
        return False
    newest = batches.newest_of(txn, bytes.fromhex(marker.application), txn.store.journal.published_sequence)
    return newest is None or newest.job == marker.job


def _hash(application: str) -> str:
    return hashlib.sha256(application.encode()).hexdigest()
