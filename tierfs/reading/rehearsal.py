"""Rehearsal: one small cold read before a mount is announced, so that the first reader does not pay for first uses.

It warms up the loop's connection to the server, the signing of a URL, and the code of the whole path: a fifth of the
first open's time (docs/design/0007-reading.md).
"""

from __future__ import annotations

import logging
from itertools import islice

import trio

from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import ReadPriority, Tier
from tierfs.engine.metadata import chains
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.reading.reader import StoreReader

log = logging.getLogger(__name__)

# Segments searched for a cold one; a store whose first hundred are local has no rehearsal.
_LOOKED_AT = 100

_READ_BYTES = 4096
# A cold tier that does not answer delays a mount no longer than this.
_LONGEST_S = 1.0


async def rehearse(reader: StoreReader) -> None:
    """Read a few cold bytes and forget them; errors are left to the first real read."""
    try:
        with trio.move_on_after(_LONGEST_S):
            await _read_a_little(reader)
    except TierfsError as exc:
        log.debug("rehearsal: %s", exc)


async def _read_a_little(reader: StoreReader) -> None:
    cold = _cold_chunk(reader.metadata)
    if cold is None:
        return
    segment, chunk, record = cold
    await reader.fetcher.connect(record)
    handle = reader.open(segment.id, priority=ReadPriority.OFFLOADED_ONLY)
    try:
        # Not at the segment's first byte: read-ahead begins there.
        await handle.read(max(segment.start_offset, chunk.start_offset) + 1, _READ_BYTES)
    finally:
        handle.close()
    span = reader.spans.find(chunk.object_id, chunk.object_offset + 1)
    if span is not None:  # kept, it would count as a hit; a reader may already wait for it
        reader.spans.drop(span)


def _cold_chunk(metadata: MetadataStore) -> tuple[SegmentRecord, ChunkRecord, ObjectRecord] | None:
    """Return the last cold chunk of a segment that has any, and its object."""
    with metadata.read() as txn:
        rows = islice(txn.scan(SEGMENTS), _LOOKED_AT)
        segment = next((segment for _, segment in rows if segment.cold.count), None)
        chunk = None if segment is None else chains.chunk_at(txn, segment.id, Tier.COLD, segment.cold.last_chunk)
        if segment is None or chunk is None or chunk.lost:
            return None
        return segment, chunk, chains.object_of(txn, chunk)
