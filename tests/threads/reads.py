"""Cases of what moves bytes: storages, their links, caches and sources."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.reading.cache import cache_blocks
from tests.reading.fetch.test_fetch_queue import Threads
from tests.stores import TestStore
from tests.threads.case import THREADS, Case, Make, made
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.options.config import ColdSettings
from tierfs.base.options.policy import Policy
from tierfs.base.system.clock import SystemClock
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.errors import AlreadyExists
from tierfs.base.words.types import (
    CRC_BLOCK_BYTES,
    MIB,
    ByteRange,
    Compression,
    LocationId,
    ObjectId,
    PayloadEncoding,
    Tier,
)
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.link import Link, Links, Slots
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.chunkstore.s3.client import connect
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.signature import UrlSigner
from tierfs.engine.chunkstore.s3.signed_urls import SignedUrls
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.pipeline.reader.buffers import Buffers
from tierfs.pipeline.reader.task_reader import TaskRows
from tierfs.reading.cache.cache import DiskCache
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.queue import WANTED_NOW
from tierfs.reading.plain_bytes import PlainBytes
from tierfs.tiering import compressed_source as compressed_sources
from tierfs.tiering.compressed_source import CompressedSource, FrameRoom, compressed
from tierfs.tiering.offload_source import ChunkSource, SourceChunk


def signed_urls(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Whoever has a target finds the origin, also if another thread signed first."""
    patch.setenv("AWS_ACCESS_KEY_ID", "key")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    connection = connect(S3Location("bucket", "p", "http://127.0.0.1:1", "us-east-1"), ColdSettings())

    def check_of(urls: SignedUrls) -> Callable[[int], None]:
        def work(number: int) -> None:
            for turn in range(5):
                assert urls.target(f"{number}-{turn}").startswith(f"/bucket/p/{number}-{turn}?")
                assert urls.origin == "http://127.0.0.1:1"
                if turn == number:
                    urls.forget(f"{number}-{turn}")

        return work

    for _turn in range(250):
        yield Case(check_of(SignedUrls(connection, SystemClock())))


def url_signer(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """The day's key is that of the day that is signed."""
    credentials = SimpleNamespace(access_key="key", secret_key="secret", token=None)
    signer = UrlSigner(cast(Any, credentials), "host", "/b/", ("region", "s3"), "900")
    times = [f"2026010{day}T000000Z" for day in range(1, 6)]
    expected = {
        time: UrlSigner(cast(Any, credentials), "host", "/b/", ("region", "s3"), "900").signed("k", time)
        for time in times
    }

    def work(number: int) -> None:
        for turn in range(300):
            time = times[(number + turn) % len(times)]
            assert signer.signed("k", time) == expected[time]

    yield Case(work)


def etags(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """What is adopted is an etag that was met and proved, and each object is remembered once."""
    known = Etags(store.metadata)
    holders = [ObjectRecord(id=ObjectId(n), tier=Tier.COLD, name=f"o{n}", length=1, etag="old") for n in range(1, 9)]

    def work(number: int) -> None:
        for turn in range(300):
            holder = holders[(number + turn) % len(holders)]
            known.meet(holder, "new", 1)
            assert known.of(holder) in ("old", "new")
            known.proved(holder, "new")
            if turn % 50 == 0:
                known.adopt()

    def check() -> None:
        assert {known.of(holder) for holder in holders} == {"new"}
        assert set(known._proved) <= {holder.id for holder in holders}

    yield Case(work, check)


def payloads(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Each thread gets its own bytes, while rows are read, kept and dropped."""
    patch.setattr("tierfs.reading.plain_bytes._KEPT_RUNS", 3)
    frame = PayloadEncoding.PULSAR_BLOCK.frame_bytes
    storage, stored, runs = MemoryStorage(), bytearray(), []
    for entry in range(20):
        runs.append(
            EntryRun(first_entry_id=entry, payload_start=entry * 10, lengths=(10,), stored_offset=1 + len(stored))
        )
        stored += bytes(frame) + bytes([entry]) * 10
    storage.put("o", BufferSource(b"\0" + stored))
    held = ObjectRecord(
        id=ObjectId(1), tier=Tier.COLD, name="o", length=200, encoding=PayloadEncoding.PULSAR_BLOCK, segment_id=1
    )
    reads = PlainBytes(TaskRows(lambda _, offset: runs[offset // 10]))

    def work(number: int) -> None:
        chosen = random.Random(number)
        for _ in range(150):
            start = chosen.randrange(199)
            view = memoryview(bytearray(chosen.randrange(1, 200 - start)))
            reads.read_into(storage, held, start, view, None, None)
            assert bytes(view) == bytes((start + at) // 10 for at in range(len(view)))

    yield Case(work)


def disk_cache(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """What is read is right, whatever others store and forget."""
    cache = DiskCache.open(store.path / "cache", cache_blocks.STORE_ID, cache_blocks.size_for(20), NullMetrics())
    assert cache is not None

    def work(number: int) -> None:
        chosen = random.Random(number)
        for _ in range(60):
            object_id, start, end = cache_blocks.some_range(chosen)
            cache_blocks.store(cache, object_id, start, end)
            cache_blocks.read(cache, object_id, start, end, now=chosen.random() < 0.5)
            if chosen.random() < 0.1:
                cache.forget(ObjectId(object_id))

    yield Case(work, cache.close)


def fetch_queue(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Each transfer runs once, however many put them."""
    threads = Threads()
    made = [[threads.new() for _ in range(50)] for _ in range(THREADS)]

    def work(number: int) -> None:
        for transfer in made[number]:
            threads.queue.put(transfer, WANTED_NOW)
            threads.queue.put(transfer, number)

    def check() -> None:
        ran = Counter(id(threads.next_ended()) for _ in range(50 * THREADS))
        assert set(ran.values()) == {1}
        assert threads.ended.empty()
        threads.queue.close()

    yield Case(work, check)


def link(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """No transfer is left in flight, and the figures are of one instant."""
    measured = Link()

    def work(number: int) -> None:
        for _ in range(300):
            with measured.begin() as timer:
                timer.watching(None)(1)
                timer.received(1 << 20)
            assert measured.figures.streams >= 1
            assert measured.first_byte_s >= 0

    def check() -> None:
        assert measured._in_flight == 0

    yield Case(work, check)


def links(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """No location that was added is lost."""
    known = Links(100)
    storages = [SimpleNamespace(link=Link()) for _ in range(40)]

    def work(number: int) -> None:
        for at in range(number, len(storages), THREADS):
            known.add(LocationId(at), cast(ChunkStorage, storages[at]))
            assert known.streams >= 1

    yield Case(work, lambda: [known.get(LocationId(at)) for at in range(40)] == [one.link for one in storages])


def slots(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Never more at once than allowed."""
    bounded, inside, most = Slots(), [0], [0]

    def work(number: int) -> None:
        for _ in range(200):
            with bounded.one_of(lambda: 2):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    def check() -> None:
        assert most[0] <= 2

    yield Case(work, check)


def storage(made: ChunkStorage) -> Iterator[Case]:
    """One of several writers wins a name; what is read is whole."""
    won: list[int] = []

    def work(number: int) -> None:
        for turn in range(15):
            with suppress(AlreadyExists):
                made.put(f"o{turn}", BufferSource(bytes([turn]) * 1000))
                won.append(turn)
            view = memoryview(bytearray(1000))
            made.read_into(f"o{turn}", 0, view)
            assert bytes(view) == bytes([turn]) * 1000
            assert [found.length_bytes for found in made.list(f"o{turn}")][:1] == [1000]

    yield Case(work, lambda: sorted(won) == list(range(15)))


def in_memory(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    yield from storage(MemoryStorage())


def in_directory(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    yield from storage(DirectoryStorage(made(store.path / "objects")))


def chunk_files(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Files of other threads come and go."""
    files: ChunkFiles = store.files

    def work(number: int) -> None:
        for turn in range(50):
            name = f"00/{number + 1}-{turn or 'f'}-{'0' * 16}"
            descriptor = files.create_file(name)
            with open(descriptor, "wb") as file:
                file.write(b"abc")
            assert name in set(files.names_in("00"))
            files.discard(name)

    yield Case(work)


def chunk_source(store: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Reads in any order have the right bytes, and the sums are those of all."""
    data = random.Random(1).randbytes(3 * CRC_BLOCK_BYTES + 7)
    name = f"00/1-0-{'0' * 16}"
    (store.files.root / name).write_bytes(data)
    for _turn in range(5):
        chunk = SourceChunk(name, len(data), tuple(block_crcs(data)), ByteRange(0, len(data)))
        source = ChunkSource(store.files, [chunk])

        def work(number: int, source: ChunkSource = source) -> None:
            for at in random.Random(number).sample(range(0, len(data), 50_000), len(range(0, len(data), 50_000))):
                assert bytes(source.read(at, min(50_000, len(data) - at))) == data[at : at + 50_000]
            source.crc32c()

        def check(source: ChunkSource = source) -> None:
            assert source.crc32c() == crc32c(data)
            assert list(source.verified_grid().grid()) == block_crcs(data)
            source.close()

        yield Case(work, check)


def compressed_source(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """Reads in any order have the bytes that one thread gets, also of frames that are compressed again."""
    for room_bytes in (0, 30_000, MIB):
        patch.setattr(compressed_sources, "ROOM", FrameRoom(room_bytes))
        plain = b"".join(b"line %d of a log\n" % number for number in range(150_000))
        source = compressed(BufferSource(plain), Policy(compression=Compression.ZSTD))
        assert source is not None
        stored = bytes(source.read(0, source.length_bytes))
        assert crc32c(stored) == source.crc32c

        def work(number: int, source: CompressedSource = source, stored: bytes = stored) -> None:
            chosen = random.Random(number)
            for _ in range(8):
                start = chosen.randrange(len(stored))
                end = chosen.randrange(start, len(stored) + 1)
                assert bytes(source.read(start, end - start)) == stored[start:end]

        def check(source: CompressedSource = source, room_bytes: int = room_bytes) -> None:
            source.close()
            source.close()
            assert compressed_sources.ROOM.left_bytes == room_bytes

        yield Case(work, check)


def buffers(_: TestStore, patch: pytest.MonkeyPatch) -> Iterator[Case]:
    """No two tasks hold one buffer."""
    pool = Buffers()

    def work(number: int) -> None:
        for _ in range(100):
            buffer = pool.take(1000)
            buffer[0] = number
            time.sleep(0)
            assert buffer[0] == number
            pool.give(buffer)

    yield Case(work, lambda: pool.kept_bytes == sum(len(one) for free in pool._free.values() for one in free))


CASES: dict[str, Make] = {
    "Buffers": buffers,
    "ChunkFiles": chunk_files,
    "ChunkSource": chunk_source,
    "CompressedSource": compressed_source,
    "DirectoryStorage": in_directory,
    "DiskCache": disk_cache,
    "Etags": etags,
    "FetchQueue": fetch_queue,
    "Link": link,
    "Links": links,
    "MemoryStorage": in_memory,
    "PlainBytes": payloads,
    "SignedUrls": signed_urls,
    "Slots": slots,
    "UrlSigner": url_signer,
}
