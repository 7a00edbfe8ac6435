"""A store of very many small segments, whose disk is lost: its recovery, and what is run on it next.

`TIERFS_BENCH_SEGMENTS` is their number, 100,000 without it. They are sealed, in packs full of zeros, in a directory as
the cold tier. The checkpoint that describes them is written by itself: to append so many takes hours. With
`TIERFS_BENCH_DIR` the directory stays, and what is there already is not made again. At the end a mount and a daemon
come to rest, and the replica takes over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tests.benchmarks.files.many_small import Cost, command_cost
from tests.benchmarks.journal_day import SEGMENT_BYTES, SEGMENTS_COUNT
from tests.benchmarks.many_resting import bench_many_resting
from tests.benchmarks.measuring import seconds
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.types import CRC_BLOCK_BYTES, ROOT_DIRECTORY, SegmentStatus, Tier
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.journal.checkpoint import manifest_of
from tierfs.engine.journal.levels import PartWriter
from tierfs.engine.journal.names import checkpoint_name
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.journal_state import CheckpointIntent
from tierfs.engine.metadata.store import new_id

VERBS = (
    ("check",),
    ("check", "--repair"),
    ("offload", "/"),
    ("ls", "-R"),
    ("gc",),
    ("status",),
    ("du",),
    ("report",),
)
_PACKED = 1000
_MADE_MS = 1_700_000_000_000
_FIRST_ID = 1000


def bench_many_recovery(directory: Path) -> Iterator[str]:
    """A line for each command."""
    directory = Path(os.environ.get("TIERFS_BENCH_DIR", directory))
    cold, path = directory / "cold", directory / "store"
    yield f"### {SEGMENTS_COUNT:,} segments recovered, a directory as the cold tier\n"
    if not cold.exists():
        cold.mkdir(parents=True)
        yield f"* built in {seconds(lambda: build(directory / 'lost', cold)):.0f} s"
        shutil.rmtree(directory / "lost")
    for verb in ("recover", "replica"):
        made = path if verb == "recover" else directory / verb
        if not made.exists():
            yield _line((verb,), command_cost(made, verb, "--cold-dir", str(cold)))
    for words in VERBS:
        yield _line(words, command_cost(path, *words))
    yield _line(("backup",), command_cost(path, "backup", str(directory / "dump")))
    yield from bench_many_resting(path, directory / "mnt")
    yield _line(("standby", "--now"), command_cost(directory / "replica", "standby", "--now", "--yes"))


def build(path: Path, cold: Path) -> None:
    """Make a store, and write a checkpoint of the segments behind the slots of its journal."""
    place = Place.parsed(cold.as_uri())
    init_store(path, place)
    with app.open_store(path) as store:
        store.cold_work().publisher.publish()
        with store.metadata.read() as txn:
            record = txn.store
    storage = place.open()
    intent = CheckpointIntent(attempt=new_id(), slot=record.journal.next_slot - 1, last_sequence=record.next_outbox - 1)
    manifest = manifest_of(record, intent)
    PartWriter(storage, intent, Meter()).write_state(manifest, state_of(SEGMENTS_COUNT, storage))
    manifest.levels[0].last_sequence = manifest.last_sequence
    manifest.next_id, manifest.state_rows = _FIRST_ID + 4 * SEGMENTS_COUNT, 2 * SEGMENTS_COUNT
    storage.put(checkpoint_name(intent.slot), BufferSource(frames.compressed_frame(manifest)))


def state_of(segments: int, storage: ChunkStorage) -> Iterator[pb.Change]:
    """Yield the changes of a checkpoint: directories, each of as many segments as a pack has, segments and links."""
    ids = count(_FIRST_ID)
    top = next(ids)
    yield _directory(top, ROOT_DIRECTORY, "logs", next(ids))
    parents = {first: next(ids) for first in range(0, segments, _PACKED)}
    for first, parent in parents.items():
        yield _directory(parent, top, f"d{first // _PACKED:05d}", next(ids))
    for first, parent in parents.items():
        names = [f"s{number:08d}" for number in range(first, min(first + _PACKED, segments))]
        pack = _pack(storage, next(ids), len(names))
        for index, name in enumerate(names):
            number = next(ids)
            yield pb.Change(segment=_segment(number, parent, name, next(ids)))
            link = pb.ColdLink(segment_id=number, chunks=[_chunk(pack.id, index * SEGMENT_BYTES)])
            if not index:
                link.objects.append(pack)
                crcs = os.urandom(4 * -(-pack.length // CRC_BLOCK_BYTES))
                link.checksums.add(version=1, object_id=pack.id, crcs=crcs)
            yield pb.Change(cold_link=link)


def _directory(number: int, parent_id: int, name: str, inode: int) -> pb.Change:
    times = {"created_ms": _MADE_MS, "modified_ms": _MADE_MS}
    record = pb.DirectoryRecord(version=1, id=number, parent_id=parent_id, name=name, inode=inode, **times)
    return pb.Change(directory=record)


def _segment(number: int, parent_id: int, name: str, inode: int) -> pb.SegmentRecord:
    at_ms = _MADE_MS + number
    record = pb.SegmentRecord(version=1, id=number, parent_id=parent_id, name=name, inode=inode, length=SEGMENT_BYTES)
    record.status, record.writer_epoch, record.generation = SegmentStatus.SEALED, 1, 2
    record.created_ms = record.modified_ms = record.changed_ms = record.sealed_ms = record.first_byte_ms = at_ms
    return record


def _chunk(pack_id: int, at: int) -> pb.ChunkRecord:
    chunk = pb.ChunkRecord(version=1, length=SEGMENT_BYTES, object_id=pack_id, object_offset=at)
    chunk.crc32c, chunk.crc_offset, chunk.crc_length = int.from_bytes(os.urandom(4), "big"), at, SEGMENT_BYTES
    return chunk


def _pack(storage: ChunkStorage, number: int, segments: int) -> pb.ObjectRecord:
    attempt, crc = new_id(), int.from_bytes(os.urandom(4), "big")
    stored = storage.put(f"packs/{number:020d}-e1-{attempt}-c{crc:08x}", BufferSource(bytes(segments * SEGMENT_BYTES)))
    record = pb.ObjectRecord(version=1, id=number, tier=Tier.COLD, location_id=1, name=stored.name, etag=stored.etag)
    record.length, record.crc32c, record.attempt, record.store_epoch = stored.length_bytes, crc, attempt, 1
    record.created_ms, record.packed, record.references = _MADE_MS, segments, segments
    return record


def _line(words: tuple[str, ...], cost: Cost) -> str:
    each_us = 1e6 * cost.cpu_s / SEGMENTS_COUNT
    cpu = f"{cost.cpu_s:.1f} s of CPU ({each_us:.0f} µs each)"
    return f"* `{' '.join(words)}`: {cost.wall_s:.0f} s, {cpu}, {cost.heap_mib:.0f} MiB"
