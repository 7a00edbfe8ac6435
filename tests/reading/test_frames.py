"""Plain bytes out of compressed objects: which requests they take, what arrives when, and frames of any size."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.ledgers import new_ledger, offload
from tests.stores import open_test_store
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import DataLoss, NotFound
from tierfs.base.words.types import MIB, ByteRange, LocationId, ObjectId, PayloadEncoding, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.frames import zstd
from tierfs.engine.frames.frame_map import FrameMap
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.reading.plain_bytes import NoRows, PlainBytes, StoreRows

NAME = "o"


class Watched(MemoryStorage):
    """Tells which ranges were asked for, delivers them in steps, and may start again."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.step_bytes = 700
        self.breaks_after = 0.0
        """Part of the bytes that arrive before it delivers all of them, which may be all."""

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        self.ranges.append((offset, offset + len(buffer)))
        progress = more.pop("progress", None)
        if self.breaks_after:
            self._deliver(name, offset, buffer, int(len(buffer) * self.breaks_after), progress)
        self._deliver(name, offset, buffer, len(buffer), progress)

    def _deliver(self, name: str, offset: int, buffer: memoryview, end: int, progress: Any) -> None:
        whole = memoryview(bytearray(len(buffer)))
        super().read_into(name, offset, whole)
        for received in [*range(self.step_bytes, end, self.step_bytes), end]:
            buffer[:received] = whole[:received]
            if progress is not None:
                progress(received)


class Frames(NoRows):
    """An object of these frames, several rows of them."""

    def __init__(self, plain: list[bytes], gaps: dict[int, bytes], row_bytes: int) -> None:
        """`gaps`: stored bytes in front of the frame of a number."""
        self.plain = b"".join(plain)
        self.stored, lengths, stored_lengths = b"", [], []
        for number, data in enumerate(plain):
            for part, length in ((gaps.get(number, b""), 0), (zstd.compressed(data, 1), len(data))):
                if part:
                    self.stored += part
                    lengths.append(length)
                    stored_lengths.append(len(part))
        self._starts = [*accumulate(lengths, initial=0)]
        self._whole = FrameMap.of(0, 0, [*lengths, 0], [*stored_lengths, 1], 0)
        self._row_bytes = row_bytes
        self.record = ObjectRecord(
            id=ObjectId(1),
            tier=Tier.COLD,
            location_id=LocationId(1),
            etag="e",
            name=NAME,
            length=len(self.plain),
            encoding=PayloadEncoding.ZSTD_FRAMES,
            stored_length=len(self.stored),
        )

    def frames(self, record: ObjectRecord, offset: int) -> FrameMap | None:
        start = offset - offset % self._row_bytes
        numbers = self._whole.holding(ByteRange(start, min(start + self._row_bytes, len(self.plain))))
        cut = slice(numbers.start, numbers.stop + 1)
        return FrameMap(self._whole.starts[cut], self._whole.stored[cut])


def read(held: Frames, storage: Watched, start: int, end: int, *, pinned: bool = True) -> tuple[bytes, list[int]]:
    """Read as a fetch does: what was shown once never changes."""
    view, shown = memoryview(bytearray(end - start)), []

    def progress(done: int) -> None:
        shown.append(done)
        assert view[:done] == held.plain[start : start + done]

    etag = storage.stat(NAME).etag if pinned else None
    PlainBytes(held).read_into(storage, held.record, start, view, etag, progress)
    assert shown == sorted(shown)
    return bytes(view), shown


def stored(held: Frames) -> Watched:
    storage = Watched()
    storage.put(NAME, BufferSource(held.stored))
    return storage


def text(chosen: random.Random, length: int) -> bytes:
    return bytes(chosen.choices(b"ab", k=length))


@pytest.mark.parametrize("seed", range(30))
def test_any_range_of_frames_of_any_size(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = random.Random(seed)
    monkeypatch.setattr("tierfs.engine.metadata.checksums.RUN_BYTES", 20_000)
    kinds = chosen.choice([(text,), (random.Random.randbytes,), (text, random.Random.randbytes)])
    plain = [chosen.choice(kinds)(chosen, chosen.choice([1, 999, 4_000, 9_000])) for _ in range(40)]
    gaps = {number: chosen.randbytes(50) for number in chosen.sample(range(1, 40), 3)}
    held = Frames(plain, gaps, 20_000)
    storage = stored(held)
    for _ in range(12):
        storage.step_bytes = chosen.choice([1_000, 3_000, 10**6])
        storage.breaks_after = chosen.choice([0.0, 0.0, 0.7, 1.0])
        start = chosen.randrange(len(held.plain))
        end = chosen.randrange(start + 1, len(held.plain) + 1)
        data, shown = read(held, storage, start, end, pinned=chosen.random() < 0.8)
        assert data == held.plain[start:end]
        assert shown[-1] == end - start


def test_a_range_is_one_request_of_its_frames_into_its_own_memory() -> None:
    held = Frames([text(random.Random(number), 10_000) for number in range(20)], {}, 10**6)
    storage = stored(held)
    assert read(held, storage, 25_000, 65_000)[0] == held.plain[25_000:65_000]
    (asked,) = storage.ranges
    assert asked[1] - asked[0] < 50_000 / 4


def test_frames_that_do_not_shrink_take_requests_of_bounded_memory() -> None:
    held = Frames([random.Random(number).randbytes(128 << 10) for number in range(24)], {}, 10**8)
    storage = stored(held)
    assert read(held, storage, 0, len(held.plain))[0] == held.plain
    assert max(end - start for start, end in storage.ranges) <= MIB
    assert len(storage.ranges) == 4


def test_a_table_between_frames_takes_no_memory() -> None:
    """As it is in a joined object; the frames beside it are received alone."""
    held = Frames([text(random.Random(number), 10_000) for number in range(4)], {2: bytes(3 * MIB)}, 10**6)
    storage = stored(held)
    assert PlainBytes(held).small_request(held.record, 15_000, memoryview(bytearray(10_000))) is None
    assert PlainBytes(held).small_request(held.record, 5_000, memoryview(bytearray(10_000))) is not None
    for start, end in ((15_000, 25_000), (0, 40_000)):
        storage.ranges.clear()
        assert read(held, storage, start, end)[0] == held.plain[start:end]
        assert sum(end - start for start, end in storage.ranges) <= 40_000


@pytest.mark.parametrize("number", [0, 3, 5])
def test_a_damaged_frame_is_zeros_and_the_others_are_right(number: int) -> None:
    held = Frames([text(random.Random(seed), 10_000) for seed in range(6)], {}, 10**6)
    frames = held.frames(held.record, 0)
    assert frames is not None
    damaged = bytearray(held.stored)
    damaged[frames.stored[number] + 100] ^= 0x55
    held.stored = bytes(damaged)
    view = memoryview(bytearray(b"x" * len(held.plain)))
    PlainBytes(held).read_into(stored(held), held.record, 0, view, None, None)
    start, end = number * 10_000, (number + 1) * 10_000
    assert bytes(view) == held.plain[:start] + bytes(10_000) + held.plain[end:]


def test_frames_that_nobody_knows_are_data_loss() -> None:
    held = Frames([b"plain"], {}, 10**6)
    with pytest.raises(DataLoss, match="the frame of the byte at 0 is unknown"):
        PlainBytes(NoRows()).read_into(stored(held), held.record, 0, memoryview(bytearray(5)), None, None)


def test_what_is_unpacked_is_counted_as_received_and_as_delivered() -> None:
    metrics = Metrics()
    held = Frames([text(random.Random(number), 10_000) for number in range(20)], {}, 10**6)
    plain, storage = PlainBytes(held, metrics), stored(held)
    view = memoryview(bytearray(15_000))
    plain.read_into(storage, held.record, 10_000, view, None, None)
    request = plain.small_request(held.record, 95_000, view[:10])
    assert request is not None
    storage.read_into(NAME, request.offset, request.view)
    request.finish()
    received = sum(end - start for start, end in storage.ranges)
    assert metrics.values(MetricName.UNPACKED_FRAMES) == {(): 3}
    assert metrics.values(MetricName.UNPACKED_BYTES) == {("stored",): received, ("plain",): 15_010}


def test_places_of_an_object_that_was_deleted_are_not_lost(tmp_path: Path) -> None:
    policy = {"compression": "zstd"}
    with open_test_store(tmp_path / "store", policy=policy) as store:
        store.append("s", b"abc" * 100)
        store.offload("s")
        offload(store, ledger := new_ledger(store, [b"entry"]))
        records = [placed.object for name in ("s", ledger) for placed in store.layout(name).cold]
        assert [record.encoding for record in records] == [PayloadEncoding.ZSTD_FRAMES, PayloadEncoding.PULSAR_BLOCK]
        for name in ("s", ledger):
            store.engine.delete(name, recursive=False, cold_due_ms=store.clock.now_ms())
        for record in records:
            view = memoryview(bytearray(record.length))
            with pytest.raises(NotFound, match="was replaced or deleted"):
                PlainBytes(StoreRows(store.metadata)).read_into(store.cold, record, 0, view, None, None)


class Changing(Watched):
    """Delivers the beginning of another version first, as a storage does that tries again."""

    def __init__(self, other: bytes) -> None:
        super().__init__()
        self._other = other

    def read_into(self, name: str, offset: int, buffer: memoryview, **more: Any) -> None:
        progress = more.pop("progress", None)
        half = len(buffer) // 2
        buffer[:half] = self._other[offset : offset + half]
        if progress is not None:
            progress(half)
        super().read_into(name, offset, buffer, progress=progress, **more)


def test_without_an_etag_frames_of_one_version_are_unpacked() -> None:
    parts = [random.Random(number).randbytes(9_000) for number in range(20)]
    held, other = Frames(parts, {}, 10**6), Frames(parts[::-1], {}, 10**6)
    storage = Changing(other.stored)
    storage.put(NAME, BufferSource(held.stored))
    view = memoryview(bytearray(len(held.plain)))
    PlainBytes(held).read_into(storage, held.record, 0, view, None, None)
    assert view == held.plain


def test_frames_of_other_bytes_are_data_loss() -> None:
    class Elsewhere(Frames):
        def frames(self, record: ObjectRecord, offset: int) -> FrameMap | None:
            return super().frames(record, 0)

    held = Elsewhere([b"a" * 100, b"b" * 100], {}, 100)
    with pytest.raises(DataLoss, match="the frame of the byte at 100 is unknown"):
        PlainBytes(held).read_into(stored(held), held.record, 100, memoryview(bytearray(5)), None, None)
