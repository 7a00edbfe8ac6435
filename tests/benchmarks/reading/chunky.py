"""One sealed cold segment of very many small chunks, built by its records: every chunk is the same S3 object."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from tests.servers.endpoint import S3Endpoint
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.words.types import CRC_BLOCK_BYTES, LocationId, ObjectId, SegmentStatus, Tier
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord, TierState
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.create import create

CHUNKS_COUNT = 100_000
CHUNK_BYTES = CRC_BLOCK_BYTES
NAME = "chunky"
SIZE_BYTES = CHUNKS_COUNT * CHUNK_BYTES
_PREFIX = "chunky"
_OBJECT = "segments/chunky/object"
OBJECT_KEY = f"{_PREFIX}/{_OBJECT}"
_BATCH = 1000
_CONTENT = random.Random(13).randbytes(CHUNK_BYTES)


def expected(start: int, length_bytes: int) -> bytes:
    """Bytes [start, start + length) of the segment, which must lie in one chunk."""
    within = start % CHUNK_BYTES
    return _CONTENT[within : within + length_bytes]


def build(
    path: Path, endpoint: S3Endpoint, bucket: str, *, chunks: int = CHUNKS_COUNT, chunk_bytes: int = CHUNK_BYTES
) -> None:
    """A store at `path` whose only segment is this one; a chunk has at most CHUNK_BYTES."""
    content = _CONTENT[:chunk_bytes]
    place = Place.parsed(f"s3://{bucket}/{_PREFIX}", Server(endpoint.endpoint_url))
    init_store(path, place)
    # Else the mount would join the chunks while they are read.
    settings = path / "store.toml"
    settings.write_text(settings.read_text().replace("[offload]", "[offload]\nconsolidate_chunks = 0"))
    client = endpoint.client()
    try:
        answer = client.put_object(Bucket=bucket, Key=OBJECT_KEY, Body=content)
    finally:
        client.close()
    etag = answer["ETag"].strip('"')
    with app.open_store(path) as store:
        location = store.cold_location_id
        assert location is not None
        with store.metadata.write() as txn:
            segment = create(txn, NAME)
        starts = range(0, chunks * chunk_bytes, chunk_bytes)
        for first in range(0, chunks, _BATCH):
            with store.metadata.write() as txn:
                for start in starts[first : first + _BATCH]:
                    _put_chunk(txn, segment, content, start, location, etag, is_last=start == starts[-1])
        with store.metadata.write() as txn:
            txn.put(SEGMENTS, tables.u64(segment.id), _sealed(segment, starts, txn.now_ms))


def _put_chunk(
    txn: WriteTransaction,
    segment: SegmentRecord,
    content: bytes,
    start: int,
    location: LocationId,
    etag: str,
    *,
    is_last: bool,
) -> None:
    following = 0 if is_last else start + len(content)
    object_id = ObjectId(txn.allocate_id())
    holder = ObjectRecord(
        id=object_id,
        tier=Tier.COLD,
        location_id=location,
        name=_OBJECT,
        length=len(content),
        etag=etag,
        references=1,
        crc32c=crc32c(content),
        store_epoch=1,
        created_ms=txn.now_ms,
    )
    chunk = ChunkRecord(start_offset=start, length=len(content), next=following, object_id=object_id)
    txn.put(CHUNKS, tables.chunk(segment.id, Tier.COLD, start), chunk)
    txn.put(OBJECTS, tables.u64(object_id), holder)
    checksums.put_grid(txn, object_id, block_crcs(content))


def _sealed(segment: SegmentRecord, starts: range, now_ms: int) -> SegmentRecord:
    cold = TierState(first_chunk=0, last_chunk=starts[-1], count=len(starts), bytes=starts.stop)
    return replace(segment, cold=cold, length=starts.stop, status=SegmentStatus.SEALED, sealed_ms=now_ms)
