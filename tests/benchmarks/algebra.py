"""Clone and concat of 100,000 chunks, and truncation that drops 1, 10, 1000 of them: one commit each."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.measuring import seconds
from tierfs.app import store as app
from tierfs.app import verbs
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store
from tierfs.base.words.types import ChunkState, LocationId, ObjectId, SegmentStatus, Tier
from tierfs.engine.metadata import checksums, directories, tables
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord, TierState
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS, SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.create import create

CHUNKS_COUNT = 100_000
CHUNK_BYTES = 1 << 20
"""Eight blocks of checksums each, so that dropping a chunk drops its run too."""
DROPPED = (1, 10, 1000)
REPETITIONS = 5
_BATCH = 20_000
_OTHERS = 3
"""Small segments whose records lie behind, so that nothing can be appended at the database's end."""


def bench_algebra(directory: Path) -> str:
    """Everything this module says it measures, as markdown."""
    lines = [f"### Clone, concat and truncate, {CHUNKS_COUNT:,} chunks, medians of {REPETITIONS}", ""]
    for tier in Tier:
        lines += [f"* {line}" for line in _of_tier(directory, tier)]
    return "\n".join(lines) + "\n"


def _of_tier(directory: Path, tier: Tier) -> list[str]:
    found: dict[str, list[float]] = {}
    for number in range(REPETITIONS):
        path = directory / f"algebra-{tier.name.lower()}-{number}"
        init_store(path)
        with app.open_store(path) as store:
            for subject, work in _subjects(store, tier):
                found.setdefault(subject, []).append(seconds(work))
        shutil.rmtree(path)
    kind = tier.name.lower()
    return [
        f"{kind}, {subject}: {statistics.median(times) * 1000:.1f} ms "
        f"({min(times) * 1000:.1f} to {max(times) * 1000:.1f})"
        for subject, times in found.items()
    ]


def _subjects(store: Store, tier: Tier) -> list[tuple[str, Callable[[], object]]]:
    """In the order in which they follow each other on one store."""
    build(store, "source", tier, sealed=True)
    for name in ("first", *(f"other{number}" for number in range(_OTHERS))):
        build(store, name, tier, sealed=False, count=1)

    def cut(count: int) -> Callable[[], object]:
        return lambda: store.engine.truncate("first", drop_to(store, count), cold_due_ms=0)

    return [
        (f"clone of {CHUNKS_COUNT:,} chunks", lambda: verbs.clone(store, "source", "clone")),
        (f"concat of {CHUNKS_COUNT:,} chunks", lambda: store.engine.concat("first", "source")),
        *((f"truncate that drops {count} of {CHUNKS_COUNT:,}", cut(count)) for count in DROPPED),
    ]


def drop_to(store: Store, count: int) -> int:
    """The offset at which `count` more chunks of `first` go."""
    with store.metadata.read() as txn:
        return directories.segment_by_name(txn, "first").start_offset + count * CHUNK_BYTES


def build(store: Store, name: str, tier: Tier, *, sealed: bool, count: int = CHUNKS_COUNT) -> None:
    """A segment with one chain of records that no bytes back."""
    with store.metadata.write() as txn:
        segment = create(txn, name)
    for first in range(0, count, _BATCH):
        with store.metadata.write() as txn:
            for index in range(first, min(first + _BATCH, count)):
                _put_chunk(txn, segment, tier, index, last=index == count - 1)
    with store.metadata.write() as txn:
        size = count * CHUNK_BYTES
        state = TierState(first_chunk=0, last_chunk=size - CHUNK_BYTES, count=count, bytes=size)
        status = SegmentStatus.SEALED if sealed else SegmentStatus.OPEN
        built = replace(segment, length=size, status=status)
        built = replace(built, local=state) if tier is Tier.LOCAL else replace(built, cold=state)
        txn.put(SEGMENTS, tables.u64(segment.id), built)


def _put_chunk(txn: WriteTransaction, segment: SegmentRecord, tier: Tier, index: int, *, last: bool) -> None:
    start = index * CHUNK_BYTES
    holder = ObjectRecord(
        id=ObjectId(txn.allocate_id()),
        tier=tier,
        location_id=LocationId(1 if tier is Tier.COLD else 0),
        name=f"segments/{segment.name}/{segment.id}/chunk-{start:020d}-{start + CHUNK_BYTES:020d}-e1-{index:032x}",
        length=CHUNK_BYTES,
        etag=f"{index:032x}",
        references=1,
        crc32c=index,
        linked_sequence=1,
    )
    chunk = ChunkRecord(
        start_offset=start,
        length=CHUNK_BYTES,
        next=0 if last else start + CHUNK_BYTES,
        object_id=holder.id,
        state=ChunkState.GOOD,
    )
    txn.put(OBJECTS, tables.u64(holder.id), holder)
    txn.put(CHUNKS, tables.chunk(segment.id, tier, start), chunk)
    checksums.put_grid(txn, holder.id, [index] * 8)
