"""Tasks read compressed objects of any form as they read plain ones, with frames that came with the plan."""

from __future__ import annotations

import pickle
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import verbs
from tests.mount.conftest import append
from tests.pipeline.reader.compressed import compress
from tests.pipeline.reader.reading import Row, connecting, fill, planned, scan_lines, store_of
from tests.pipeline.reader.test_scrubbing import bad_bytes, deep_bytes, flip, holder_of, reports
from tierfs.app import store as app
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, ObjectId, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.frames.frame_map import FRAME_BYTES, FrameMap
from tierfs.engine.metadata import checksums, tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import CHECKSUMS
from tierfs.pipeline.reader.extents import PlaceConnections, clip, from_flat
from tierfs.pipeline.reader.fetching import ScanFetcher
from tierfs.pipeline.reader.line_format import LineFormat
from tierfs.pipeline.reader.planning import Reach, Sizes
from tierfs.pipeline.reader.selection import Selection
from tierfs.pipeline.reader.task_reader import TaskRows

PATIENCE_S = 60.0
SMALL = 300


def text(seed: int, length_bytes: int) -> bytes:
    """Lines that compress well; of a long text some are there again."""
    chosen = random.Random(seed)
    words = [chosen.randbytes(3).hex() for _ in range(50)]
    drawn = [" ".join(chosen.choices(words, k=chosen.randrange(1, 40))) for _ in range(min(10_000, length_bytes // 40))]
    lines = []
    while length_bytes > 0:
        line = chosen.choice(drawn).encode()[: length_bytes - 1] + b"\n"
        lines.append(line)
        length_bytes -= len(line)
    return b"".join(lines)


TAIL = b"tail\n"


@cache
def texts() -> dict[str, bytes]:
    """Of two rows of checksums, of a chain with a local tail, of random bytes, and of packs."""
    return {
        "long": text(1, 34 * MIB + 4321),
        "both": text(2, 3 * MIB) + TAIL,
        "random": random.Random(3).randbytes(MIB).replace(b"\r", b""),  # no part of a line before its end
        **{f"small/{number:03}": text(number, 1000 + 37 * number) for number in range(SMALL)},
    }


@pytest.fixture(scope="module")
def lines() -> dict[str, list[bytes]]:
    return {name: data.removesuffix(b"\n").split(b"\n") for name, data in texts().items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all of it in plain objects, of which only one has its bytes in both tiers; its appends take 1 s."""
    path = tmp_path_factory.mktemp("made") / "store"
    with store_of(path, chunk_bytes=40 * MIB, object_bytes=64 * MIB) as opened:
        fill(opened, texts()["long"], name="long", seal=True)
        fill(opened, texts()["random"], name="random", seal=True)
        for number in range(SMALL):
            append(opened, f"small/{number:03}", texts()[f"small/{number:03}"], seal=True)
        verbs.offload(opened)
        verbs.evict(opened, force=True)
        fill(opened, texts()["both"].removesuffix(TAIL), name="both")
        verbs.offload(opened)
        append(opened, "both", b"tail\n")
    return path


@pytest.fixture
def store(made: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[app.Store]:
    """A copy of that store."""
    path = tmp_path / f"store-{request.node.name}"  # connections of a process know a store by its path, for longer
    shutil.copytree(made, path, ignore=shutil.ignore_patterns("ballast"))
    with app.open_store(path) as opened:
        yield opened


def everything() -> Selection:
    return Selection(recursive=True)


def by_segment(partitions: Sequence[Sequence[Row]]) -> dict[str, list[bytes]]:
    found: dict[str, list[tuple[int, bytes]]] = {}
    for name, offset, line in (row for rows in partitions for row in rows):
        found.setdefault(name, []).append((offset, line))
    return {name: [line for _, line in sorted(rows)] for name, rows in found.items()}


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_lines_of_objects_of_any_form(store: app.Store, lines: dict[str, list[bytes]], seed: int | None) -> None:
    compress(store, seed)
    split_bytes = 5 * MIB if seed is None else random.Random(seed).randrange(MIB, 40 * MIB)
    assert by_segment(scan_lines(store, LineFormat(), split_bytes, everything())) == lines


def test_a_scrub_reads_every_byte_of_each_copy(store: app.Store) -> None:
    compress(store, 4)
    found = reports(store, partition_bytes=3 * MIB)
    assert sum(report.cold_bytes for report in found) == sum(map(len, texts().values())) - len(TAIL)
    assert not [fault for report in found for fault in report.faults]


def test_a_scrub_finds_what_the_check_finds(store: app.Store) -> None:
    compress(store)
    for name, offset in (("long", 99), ("small/007", 5)):
        flip(store, name, Tier.COLD, offset)
    found = bad_bytes(store)
    assert {name.partition("/")[0] for name, *_ in found} == {"long", "small"}
    assert found == deep_bytes(store)


class Counted(Wrapped):
    """Counts reads."""

    def __init__(self, inner: ChunkStorage) -> None:
        super().__init__(inner)
        self.read: list[tuple[str, int]] = []
        self._lock = threading.Lock()

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        with self._lock:
            self.read.append((name, len(buffer)))
        super().read_into(name, offset, buffer, **more)


@pytest.mark.parametrize("scrubs", [False, True])
def test_a_request_ends_before_blocks_that_nobody_wants(
    store: app.Store, monkeypatch: pytest.MonkeyPatch, scrubs: bool
) -> None:
    """The plan does not have their frames."""
    compress(store, packs_only=True)
    left_out = {f"small/{number:03}" for number in range(140, 175)}
    size_bytes = sum(len(texts()[name]) for name in left_out)
    assert CRC_BLOCK_BYTES < size_bytes < 2 * CRC_BLOCK_BYTES
    storages = connecting(monkeypatch, Counted)
    wanted = sorted({name for name in texts() if name.startswith("small/")} - left_out)
    if scrubs:
        assert not [fault for report in reports(store, *wanted, partition_bytes=64 * MIB) for fault in report.faults]
    else:
        found = by_segment(scan_lines(store, LineFormat(), 64 * MIB, Selection(tuple(wanted))))
        assert sorted(found) == wanted
    (storage,) = storages
    assert len(storage.read) <= 4


@pytest.mark.parametrize("seed", [None, 5])
def test_small_files_of_a_pack_share_requests(
    store: app.Store, monkeypatch: pytest.MonkeyPatch, lines: dict[str, list[bytes]], seed: int | None
) -> None:
    compress(store, seed, packs_only=True)
    storages = connecting(monkeypatch, Counted)
    found = by_segment(scan_lines(store, LineFormat(), 64 * MIB, Selection(("small",))))
    assert found == {name: data for name, data in lines.items() if name.startswith("small/")}
    (storage,) = storages
    assert len(storage.read) <= 3 * len({name for name, _ in storage.read})
    assert sum(size_bytes for _, size_bytes in storage.read) < sum(map(len, texts().values())) / 2


def read(store: app.Store, name: str, span: ByteRange) -> bytes:
    """Bytes of a segment as a task reads them, whose partition has only these."""
    place, (partition,) = planned(store, Selection((name,)), Sizes(64 * MIB), Reach(0, 0))
    (part,) = partition.parts
    extents = [from_flat(extent.flat()) for extent in clip(part.extents, span)]
    with ScanFetcher(place, PlaceConnections(), (part.source,)) as fetcher:
        return fetcher.read(0, extents)


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_a_chunk_bring_the_frames_of_their_blocks(store: app.Store, seed: int) -> None:
    compress(store, seed)
    chosen = random.Random(seed)
    for name in ("long", "both", "small/150", "random"):
        start = chosen.randrange(len(texts()[name]))
        end = min(len(texts()[name]), start + chosen.choice([1, FRAME_BYTES, 3 * MIB]))
        assert read(store, name, ByteRange(start, end)) == texts()[name][start:end]


def change_run(store: app.Store, name: str, offset: int, **values: Any) -> ObjectRecord:
    """Change the row of checksums of a cold byte."""
    holder, at = holder_of(store, name, Tier.COLD, offset)
    with store.metadata.write() as txn:
        run = checksums.run_at(txn, holder.id, at)
        assert run is not None
        if not values:
            crcs = bytearray(run.crcs)
            crcs[(at - run.start) // CRC_BLOCK_BYTES * 4] ^= 1
            values = {"crcs": bytes(crcs)}
        txn.put(CHECKSUMS, tables.pair(holder.id, run.start), replace(run, **values))
    return holder


def test_a_chunk_proves_right_by_itself_with_all_of_its_frames(tmp_path: Path) -> None:
    """A block that it shares with another segment is bad, and a task reads a part of it there."""
    with store_of(tmp_path / "shared", chunk_bytes=8 * MIB, object_bytes=64 * MIB) as store:
        data = {"a": text(1, 1000), "b": text(2, 3 * MIB)}
        for name, content in data.items():
            append(store, name, content, seal=True)
        verbs.offload(store)
        verbs.evict(store, force=True)
        compress(store, packs_only=True)
        holder = change_run(store, "b", 0)
        assert holder.packed == 2
        assert read(store, "b", ByteRange(100, 200)) == data["b"][100:200]
        assert not [fault for report in reports(store, "b") for fault in report.faults]


@pytest.mark.parametrize("name", ["long", "small/002"])
def test_bytes_whose_frames_the_metadata_lacks_are_an_error(store: app.Store, name: str) -> None:
    compress(store)
    change_run(store, name, 10, frame_lengths=(), stored_lengths=())
    with pytest.raises(DataLoss, match=r"the frame of the byte at \d+ is unknown"):
        read(store, name, ByteRange(0, 100))
    if name == "long":  # its other row is right
        assert read(store, name, ByteRange(33 * MIB, 34 * MIB)) == texts()["long"][33 * MIB : 34 * MIB]
    (fault,) = {fault.segment for report in reports(store, name) for fault in report.faults}
    assert fault == name


def test_a_plan_of_frames_is_compact(store: app.Store) -> None:
    _, plain = planned(store, everything(), Sizes(MIB), Reach(0, 0))
    compress(store)
    _, compressed = planned(store, everything(), Sizes(MIB), Reach(0, 0))
    assert len(pickle.dumps(compressed)) < 1.7 * len(pickle.dumps(plain))


def test_a_block_is_read_by_frames_that_have_all_of_it() -> None:
    holder = ObjectRecord(id=ObjectId(1), tier=Tier.COLD, name="o", length=3 * CRC_BLOCK_BYTES + 1)
    frames = FrameMap.of(0, 0, [3 * CRC_BLOCK_BYTES // 2] * 2 + [1], [50, 50, 10], 0)
    rows = TaskRows(lambda *_: None)
    parts = [frames.cut(ByteRange(start, end)) for start, end in ((2 << 17, 3 << 17), (1 << 17, 2 << 17), (0, 1 << 17))]
    rows.add(holder, [*parts, frames.cut(ByteRange(3 << 17, holder.length))])
    for block in range(4):
        found = rows.frames(holder, block * CRC_BLOCK_BYTES)
        assert found is not None
        end = min((block + 1) * CRC_BLOCK_BYTES, holder.length)
        assert found.plain.contains(ByteRange(block * CRC_BLOCK_BYTES, end))
