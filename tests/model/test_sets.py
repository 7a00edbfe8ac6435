"""Sets of files of every size around a boundary: offloaded at once, into as few objects as their bytes need.

Boundaries are a block of checksums, a read of an upload, a part, a chunk, an object, what a pack takes, and a pack's
entries. In small sets they are made small by settings; a real one has them as they are. `TIERFS_SETS=2000` draws more
small ones, `TIERFS_REAL_SETS=25` more real ones for each place.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import append
from tests.pipeline.reader.reading import scan_lines
from tierfs.app import store as app
from tierfs.app.setup.create import INSIDE, init_store
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ROOT_DIRECTORY, ReadPriority
from tierfs.engine.chunkstore.directory import write
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import policies
from tierfs.engine.metadata.tables import FAILURES, GARBAGE, INTENTS
from tierfs.engine.segments.bulk_create import WholeSegment
from tierfs.faces.fsspec.filesystem import TierfsFileSystem
from tierfs.pipeline.reader.line_format import LineFormat
from tierfs.tiering import candidates, offload_queue

SETS = int(os.environ.get("TIERFS_SETS", "40"))
REAL_SETS = int(os.environ.get("TIERFS_REAL_SETS", "1"))

BLOCK = CRC_BLOCK_BYTES
NEVER_S = "1000000000"


@dataclass(frozen=True, slots=True)
class Knobs:
    """The boundaries of one set."""

    chunk_bytes: int
    object_bytes: int
    pack_below_bytes: int
    step_bytes: int = MIB
    entries: int = candidates.MAX_PACK_ENTRIES

    @property
    def small_bytes(self) -> int:
        """Runs below it share an object."""
        return min(self.pack_below_bytes, self.object_bytes // 16)

    def sizes(self, draw: random.Random, count: int, most_bytes: int) -> list[int]:
        """Sizes around the boundaries, or anywhere between them; as many as fit."""
        limits = [0, 1, BLOCK, self.step_bytes, self.chunk_bytes, self.object_bytes, self.small_bytes]
        edges = [size for limit in limits for size in (limit - 1, limit, limit + 1) if size >= 0]
        reach = draw.choice([10, 100, self.small_bytes + 1, self.chunk_bytes + 1])
        sizes: list[int] = []
        for _ in range(count):
            size = draw.choice(edges) if draw.random() < 0.3 else draw.randrange(reach + 1)
            if sum(sizes) + size <= most_bytes:
                sizes.append(size)
        return sizes

    def objects(self, sizes: Sequence[int]) -> int:
        """Number of objects that segments of these sizes need, in the order of their names."""
        made, group, group_bytes = 0, 0, 0
        for size in (run for whole in sizes for run in self._runs(whole)):
            if size >= self.small_bytes:
                made += 1
                continue
            if group and (group_bytes + size > self.object_bytes or group == self.entries):
                made, group, group_bytes = made + 1, 0, 0
            group, group_bytes = group + 1, group_bytes + size
        return made + bool(group)

    def _runs(self, size: int) -> Iterator[int]:
        """Cut a segment into its objects: whole chunks, as many as one may have."""
        run = 0
        for start in range(0, size, self.chunk_bytes):
            chunk = min(self.chunk_bytes, size - start)
            if run and run + chunk > self.object_bytes:
                yield run
                run = 0
            run += chunk
        if run:
            yield run


MOST_BY_NAME = 300
"""Segments of a set that are read one by one; the scan reads all."""


def drawn(draw: random.Random) -> Knobs:
    object_bytes = draw.choice([64, 160, 1600, 16 * 1000, BLOCK, 4 * BLOCK + 1])
    return Knobs(
        chunk_bytes=max(1, object_bytes // draw.choice([1, 2, 3, 7])),
        object_bytes=object_bytes,
        pack_below_bytes=draw.choice([0, 5, 100, 4 * MIB]),
        step_bytes=draw.choice([1, 7, 64, 1000, 4096, BLOCK]),
        entries=draw.choice([1, 2, 3, 50, 20_000]),
    )


def content(draw: random.Random, size: int) -> bytes:
    """Lines: a scan yields them, and nothing else of a segment."""
    if size < 10_000:
        return bytes(draw.choices(b"abcdefghij\n", k=size))
    return (draw.randbytes(20).hex().encode() + b"\n") * (size // 41) + bytes(draw.choices(b"xyz", k=size % 41))


@contextmanager
def opened(path: Path, place: Place, knobs: Knobs) -> Iterator[app.Store]:
    init_store(path, place)
    (path / "store.toml").write_text(f"[offload]\npack_below_bytes = {knobs.pack_below_bytes}\n")
    with app.open_store(path) as store:
        with store.metadata.write() as txn:
            limits = {"chunk_bytes": str(knobs.chunk_bytes), "object_bytes": str(knobs.object_bytes)}
            policies.put(txn, ROOT_DIRECTORY, limits | {"chunk_age": NEVER_S, "offload_after": NEVER_S})
        yield store


def fill(store: app.Store, data: dict[str, bytes]) -> None:
    """Create sealed segments, as `ingest` does: those of one chunk many at once."""
    with closing(store.engine.bulk_creator()) as creator:
        batch = [WholeSegment(*pair) for pair in data.items()]
        for segment, created in zip(batch, creator.create(batch, seal=True), strict=True):
            if not created:
                append(store, segment.name, bytes(segment.data), seal=True)


def check_offloaded(store: app.Store, knobs: Knobs, data: dict[str, bytes]) -> None:
    """Offload and evict a set; check what is left of it, and every byte by every reader."""
    sizes = [len(data[name]) for name in sorted(data)]
    report = verbs.offload(store)
    assert report.objects == knobs.objects(sizes), (knobs, sizes)
    assert report.bytes == sum(sizes)
    assert verbs.offload(store).objects == 0
    assert verbs.evict(store).bytes == sum(sizes)
    with store.metadata.read() as txn:
        assert txn.count(GARBAGE.name) == txn.count(INTENTS.name) == 0
        assert txn.sums is not None
        assert txn.sums.suspect_local_bytes == txn.sums.suspect_cold_bytes == txn.sums.local_bytes == 0
        assert txn.count(FAILURES.name) == 0
    filesystem = TierfsFileSystem(str(store.path))
    for name in list(data)[:: 1 + len(data) // MOST_BY_NAME]:
        whole = data[name]
        read = bytearray()
        verbs.cat(store, name, None, None, ReadPriority.OFFLOADED_ONLY, read.extend)
        assert bytes(read) == whole, name
        assert filesystem.cat_file(name) == whole, name
    lines: dict[str, list[bytes]] = {name: [] for name in data}
    for part in scan_lines(store, LineFormat()):
        for name, _, line in part:
            lines[name].append(line)
    for name, whole in data.items():
        assert b"\n".join(lines[name]) == whole.removesuffix(b"\n"), name


@pytest.mark.parametrize("seed", range(SETS))
def test_a_small_set_is_offloaded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    knobs = drawn(draw)
    monkeypatch.setattr(write, "STEP_BYTES", knobs.step_bytes)
    monkeypatch.setattr(candidates, "MAX_PACK_ENTRIES", knobs.entries)
    monkeypatch.setattr(offload_queue, "MAX_PACK_ENTRIES", knobs.entries)
    # A file for each chunk, a call for each step: more would take time and cross no other boundary.
    most_bytes = min(draw.choice([200, 5000, 600_000]), 200 * knobs.chunk_bytes, 5000 * knobs.step_bytes)
    sizes = knobs.sizes(draw, draw.choice([0, 1, 2, 3, 20, 60]), most_bytes)
    data = {f"d{number:03d}": content(draw, size) for number, size in enumerate(sizes)}
    with opened(tmp_path / f"store-{seed}", INSIDE, knobs) as store:
        fill(store, data)
        check_offloaded(store, knobs, data)
    TierfsFileSystem.clear_instance_cache()


REAL = Knobs(64 * MIB, 64 * MIB, 4 * MIB)
COUNTS = [1, 20_000, 10_000, 3000, 100, 6000]


def real_data(seed: int) -> dict[str, bytes]:
    """The first set is three thousand files of 20 to 100 bytes."""
    draw = random.Random(seed)
    if not seed:
        return {f"d{number:05d}": content(draw, draw.randrange(20, 101)) for number in range(3000)}
    sizes = REAL.sizes(draw, draw.choice(COUNTS), most_bytes=draw.choice([1, 8, 150]) * MIB)
    return {f"d{number:05d}": content(draw, size) for number, size in enumerate(sizes)}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", [pytest.param("directory", marks=pytest.mark.whole), "rgw"])
@pytest.mark.parametrize("seed", range(REAL_SETS))
def test_a_real_set_is_offloaded_at_once(tmp_path: Path, request: pytest.FixtureRequest, place: str, seed: int) -> None:
    made_in = INSIDE
    if place == "rgw":
        endpoint, bucket = request.getfixturevalue("rgw_bucket")
        made_in = Place.parsed(f"s3://{bucket}/sets", Server(endpoint.endpoint_url))
    with opened(tmp_path / f"store-{place}-{seed}", made_in, REAL) as store:
        data = real_data(seed)
        fill(store, data)
        check_offloaded(store, REAL, data)
    TierfsFileSystem.clear_instance_cache()
