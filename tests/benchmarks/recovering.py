"""Recovery of a store from its journal on Ceph RGW: seconds, memory, and what was asked of the server.

The chunks are only in the journal: it is their records that are recovered, no object of theirs is read.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.measuring import seconds
from tests.servers.rgw import RgwServer
from tierfs.app import store as app
from tierfs.app.recovery import from_journal, recover
from tierfs.base.bytes.progress import Progress
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, AttemptId, ByteRange, LocationId, ObjectId, Tier
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import changes, checksums, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord, SegmentRecord
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.create import create
from tierfs.tiering.objects import object_name

SEGMENTS_COUNT = 10_000
CHUNKS_PER_SEGMENT = 10
CHUNK_BYTES = 64 * MIB
_BATCH = 50
"""Segments per transaction, and per entry of the journal at least."""


def build(path: Path) -> None:
    """The store and its journal: every chunk linked by a change of its own, as offload does."""
    with app.open_store(path) as store:
        publisher = store.cold_work().publisher
        for first in range(0, SEGMENTS_COUNT, _BATCH):
            with store.metadata.write() as txn:
                for number in range(first, first + _BATCH):
                    _cold_segment(txn, f"d{number % 100:02d}/s{number:06d}")
            publisher.publish()


def _cold_segment(txn: WriteTransaction, name: str) -> None:
    segment = create(txn, name)
    for index in range(CHUNKS_PER_SEGMENT):
        segment = _cold_chunk(txn, segment, name, index * CHUNK_BYTES)
    txn.put(SEGMENTS, tables.u64(segment.id), segment)


def _cold_chunk(txn: WriteTransaction, segment: SegmentRecord, name: str, start: int) -> SegmentRecord:
    span = ByteRange(start, start + CHUNK_BYTES)
    attempt = AttemptId(os.urandom(16).hex())
    holder = ObjectRecord(
        id=ObjectId(txn.allocate_id()),
        tier=Tier.COLD,
        location_id=LocationId(1),
        name=object_name(name, segment.id, span, 1, attempt, None),
        length=CHUNK_BYTES,
        etag=attempt,
        crc32c=start & 0xFFFF_FFFF,
        store_epoch=1,
        attempt=attempt,
        created_ms=txn.now_ms,
    )
    grid = os.urandom(CHUNK_BYTES // CRC_BLOCK_BYTES * 4)
    crcs = [int.from_bytes(grid[at : at + 4], "big") for at in range(0, len(grid), 4)]
    checksums.put_grid(txn, holder.id, crcs)
    chunk = ChunkRecord(start_offset=start, length=CHUNK_BYTES, object_id=holder.id)
    longer = replace(segment, length=span.end, changed_ms=txn.now_ms)
    linked = Editor(txn, longer).insert(Tier.COLD, chunk, holder).segment
    changes.segment_changed(txn, linked)
    changes.cold_linked(txn, segment.id, (chunk,), (replace(holder, references=1),))
    return linked


def bench_recover(path: Path, server: RgwServer, bucket: str) -> str:
    """Recover from the entries alone, then from a checkpoint, each into a new directory."""
    built = seconds(lambda: build(path))
    chunks = SEGMENTS_COUNT * CHUNKS_PER_SEGMENT
    lines = [
        f"### Recovery of {SEGMENTS_COUNT:,} segments, {chunks:,} chunks of 64 MiB, from the journal on Ceph RGW",
        "",
        f"Built and published in {built:.0f} s.",
        "",
        "| from | seconds | CPU seconds | peak memory | with mapped file pages | journal read | requests |",
        "|---|---|---|---|---|---|---|",
        _row("entries", _recover(path.parent / "entries", server, bucket)),
    ]
    with app.open_store(path.parent / "entries") as store:
        store.cold_work().checkpointer.checkpoint()
    lines.append(_row("a checkpoint", _recover(path.parent / "checkpoint", server, bucket)))
    return "\n".join(lines) + "\n"


def _recover(path: Path, server: RgwServer, bucket: str) -> dict[str, float]:
    """In a process of its own, whose memory is measured."""
    command = [sys.executable, "-m", "tests.benchmarks.recovering", str(path), bucket, server.endpoint_url]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert (found["segments"], found["incomplete"]) == (SEGMENTS_COUNT, SEGMENTS_COUNT)
    return found


def _row(name: str, found: dict[str, float]) -> str:
    memory = f"{found['anonymous_bytes'] / 2**20:.0f} MiB | {found['rss_bytes'] / 2**20:.0f} MiB"
    asked = f"{found['read_bytes'] / 2**20:.0f} MiB | {found['requests']:.0f}"
    return f"| {name} | {found['seconds']:.1f} | {found['cpu_s']:.1f} | {memory} | {asked} |"


def _anonymous_bytes() -> int:
    """Resident memory without the pages of LMDB's file, which the kernel may take back at any time."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def main() -> None:
    """Recover once, as the command does, and print the figures as JSON."""
    path, bucket, endpoint_url = sys.argv[1:]
    metrics = Metrics()
    from_journal.Metrics = lambda: metrics  # type: ignore[misc,assignment]
    place = Place.parsed(f"s3://{bucket}/p", Server(endpoint_url))
    reports: list[recover.RecoverReport] = []
    anonymous: list[int] = []

    def sample(done: Progress) -> None:
        anonymous.append(_anonymous_bytes())

    taken = seconds(lambda: reports.append(recover.recover_store(Path(path), place, sample)))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "seconds": taken,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "rss_bytes": usage.ru_maxrss * 1024,
        "anonymous_bytes": max(anonymous),
        "requests": sum(metrics.values(MetricName.STORAGE_REQUESTS).values()),
        "read_bytes": metrics.values(MetricName.STORAGE_BYTES)["cold", "read"],
        "segments": reports[0].segments,
        "incomplete": len(reports[0].incomplete),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
