"""The contract of ChunkStorage as tests, for pytest: what tierfs's own places pass, a binding of a package has to pass.

Sizes lie around the boundaries of blocks, steps and parts: some 170 MB are written and read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.errors import AlreadyExists, Closed, DataLoss, InvalidRequest, NotFound
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB
from tierfs.engine.chunkstore.protocol import (
    BufferSource,
    ChunkStorage,
    ManyDeletes,
    ObjectPiece,
    PendingUpload,
    StoredObject,
    Uploads,
)

SIZES = [0, 1, CRC_BLOCK_BYTES + 1, 16 * MIB, 16 * MIB + 1, 32 * MIB + 1]
CONTENT = random.Random(20).randbytes(max(SIZES))
CREATORS = 8

RANGES = [(0, 1), (1, 1), (3 * MIB - 1, 1), (7, 0), (3 * MIB, 0), (MIB - 1, 2), (12345, 2 * MIB + 1)]

ORDERED = ["B", "a-b/x", "a.x", "a/x", "a/y/1", "a/y/2", "a/y0", "a0", "zz/1", "é", "日本/語", "\U0001f600"]
"""Ascending by UTF-8: '-' and '.' sort before '/', digits after; UTF-16 would put the last one earlier."""


LISTINGS = [
    ("a", "", ["a-b/x", "a.x", "a/x", "a/y/1", "a/y/2", "a/y0", "a0"]),
    ("a/", "", ["a/x", "a/y/1", "a/y/2", "a/y0"]),
    ("a/y", "", ["a/y/1", "a/y/2", "a/y0"]),
    ("a/y/", "a/y/1", ["a/y/2"]),
    ("a/y/2", "", ["a/y/2"]),
    ("a/", "B", ["a/x", "a/y/1", "a/y/2", "a/y0"]),
    ("a/", "b", []),
    ("z", "", ["zz/1"]),
    ("日", "", ["日本/語"]),
    ("日本/", "", ["日本/語"]),
    ("../", "", []),
    ("/a", "", []),
    ("x", "", []),
]

LONG_NAME = "/".join(["é" * 127] * 3) + "/chunk-" + "0" * 100


def put(storage: ChunkStorage, name: str, data: Buffer = b"bytes", **metadata: str) -> StoredObject:
    """Store an object."""
    return storage.put(name, BufferSource(data), metadata=metadata)


def read(storage: ChunkStorage, name: str, offset: int, length_bytes: int, **options: str) -> bytes:
    """Return a range of an object."""
    buffer = bytearray(length_bytes)
    storage.read_into(name, offset, memoryview(buffer), **options)  # type: ignore[arg-type]
    return bytes(buffer)


def pending(storage: ChunkStorage) -> list[PendingUpload]:
    """Return the uploads that were not ended."""
    return list(storage.uploads("")) if isinstance(storage, Uploads) else []


def names(storage: ChunkStorage, prefix: str = "", after: str = "") -> list[str]:
    """Return the names of a listing."""
    return [stored.name for stored in storage.list(prefix, after=after)]


class ShortSource(BufferSource):
    """Declares more bytes than it has."""

    @property
    def length_bytes(self) -> int:
        return super().length_bytes + 1


class BrokenSource(BufferSource):
    """Finds its last bytes damaged."""

    def read(self, offset: int, length_bytes: int) -> Buffer:
        if offset + length_bytes == self.length_bytes:
            raise DataLoss("damaged")
        return super().read(offset, length_bytes)


class Reads:
    """Reads of ranges, versions and names."""

    def test_ranged_reads(self, storage: ChunkStorage) -> None:
        put(storage, "object", memoryview(CONTENT)[: 3 * MIB])
        for offset, length in RANGES:
            assert read(storage, "object", offset, length) == CONTENT[offset : offset + length], (offset, length)
        with ThreadPoolExecutor(CREATORS) as pool:
            answers = pool.map(lambda wanted: read(storage, "object", *wanted), RANGES * 2)
            assert list(answers) == [CONTENT[offset : offset + length] for offset, length in RANGES * 2]

    def test_reading_beyond_the_end_is_data_loss(self, storage: ChunkStorage) -> None:
        put(storage, "object", b"0123456789")
        for offset, length in [(0, 11), (9, 2), (10, 1), (11, 0), (1000, 1)]:
            with pytest.raises(DataLoss):
                read(storage, "object", offset, length)
        assert read(storage, "object", 0, 10) == b"0123456789"
        put(storage, "empty", b"")
        assert read(storage, "empty", 0, 0) == b""
        with pytest.raises(DataLoss):
            read(storage, "empty", 0, 1)

    def test_progress_ascends_and_tells_what_is_there(self, storage: ChunkStorage) -> None:
        size = 5 * MIB + 17
        put(storage, "object", memoryview(CONTENT)[:size])
        buffer = bytearray(size)
        seen = []

        def progress(received: int) -> None:
            assert buffer[:received] == CONTENT[100 : 100 + received]
            seen.append(received)

        storage.read_into("object", 100, memoryview(buffer)[: size - 100], progress=progress)
        assert seen == sorted(set(seen))
        assert seen[-1] == size - 100
        assert len(seen) >= 5

    def test_error_in_progress_ends_the_read_and_passes(self, storage: ChunkStorage) -> None:
        put(storage, "object", memoryview(CONTENT)[: 3 * MIB])

        def progress(received: int) -> None:
            raise KeyError(received)

        with pytest.raises(KeyError):
            storage.read_into("object", 0, memoryview(bytearray(3 * MIB)), progress=progress)
        assert read(storage, "object", 5, 5) == CONTENT[5:10]

    def test_if_match(self, storage: ChunkStorage) -> None:
        first = put(storage, "object", b"first")
        assert read(storage, "object", 0, 5, if_match=first.etag) == b"first"
        second = storage.put("object", BufferSource(b"other"), create_only=False)
        assert read(storage, "object", 0, 5, if_match=second.etag) == b"other"
        for length in (5, 0):
            with pytest.raises(DataLoss):
                read(storage, "object", 0, length, if_match=first.etag)

    def test_names_that_need_encoding(self, storage: ChunkStorage) -> None:
        for name in (
            "ü/日本 語",
            "a b+c&d=e?f#g%20h%",
            "~'()*!,;:@$[]{}|^`\"<>\\",
            "tab\there",
            "\U0001f600",
            LONG_NAME,
        ):
            stored = put(storage, name, b"bytes")
            assert stored.name == name
            assert read(storage, name, 1, 3, if_match=stored.etag) == b"yte"
            assert names(storage) == [name]
            storage.delete(name)
            assert names(storage) == []


class Writes:
    """Objects of any size, whole or not at all."""

    @pytest.mark.parametrize("size", SIZES)
    def test_round_trip(self, storage: ChunkStorage, size: int) -> None:
        data = memoryview(CONTENT)[:size]
        stored = put(storage, "a/object", data, attempt="0123", range="0-1")
        assert (stored.name, stored.length_bytes) == ("a/object", size)
        assert stored.metadata == {"attempt": "0123", "range": "0-1"}
        assert stored.etag
        assert storage.stat("a/object") == stored
        assert stored.modified_ms in (0, storage.stat("a/object").modified_ms)  # 0: the server was not asked
        assert read(storage, "a/object", 0, size) == data

    @pytest.mark.parametrize("size", [5, 16 * MIB + 1])
    def test_create_only_keeps_what_is_there(self, storage: ChunkStorage, size: int) -> None:
        first = put(storage, "object", b"first", attempt="1")
        with pytest.raises(AlreadyExists):
            put(storage, "object", memoryview(CONTENT)[:size], attempt="2")
        assert storage.stat("object") == first
        assert read(storage, "object", 0, 5) == b"first"

    @pytest.mark.parametrize("size", [5, 16 * MIB + 1])
    def test_overwrite(self, storage: ChunkStorage, size: int) -> None:
        first = put(storage, "object", b"first", attempt="1")
        second = storage.put(
            "object", BufferSource(memoryview(CONTENT)[:size]), metadata={"attempt": "2"}, create_only=False
        )
        assert second.etag != first.etag
        assert second.metadata == {"attempt": "2"}
        assert read(storage, "object", 0, size) == CONTENT[:size]

    @pytest.mark.parametrize("kind", [ShortSource, BrokenSource])
    @pytest.mark.parametrize("size", [MIB + 1, 17 * MIB])
    def test_source_that_fails_leaves_nothing(self, storage: ChunkStorage, kind: type[BufferSource], size: int) -> None:
        with pytest.raises(DataLoss):
            storage.put("object", kind(memoryview(CONTENT)[:size]))
        assert names(storage) == []
        with pytest.raises(NotFound):
            storage.stat("object")
        assert pending(storage) == []
        storage.put("object", BufferSource(memoryview(CONTENT)[:size]))
        assert pending(storage) == []


class Keeps:
    """Metadata, deletion, and listings."""

    def test_listing_tells_what_stat_tells(self, storage: ChunkStorage) -> None:
        put(storage, "object", b"bytes", attempt="1")
        stored = storage.stat("object")
        (listed,) = storage.list("")
        assert abs(listed.modified_ms - stored.modified_ms) < 1000  # some listings and HEADs round
        assert listed == replace(stored, metadata={})

    def test_exactly_one_of_concurrent_creators_wins(self, storage: ChunkStorage) -> None:
        def create(creator: int) -> int | None:
            try:
                put(storage, "contested", bytes([creator]) * 1000, attempt=str(creator))
            except AlreadyExists:
                return None
            return creator

        with ThreadPoolExecutor(CREATORS) as pool:
            winners = [winner for winner in pool.map(create, range(CREATORS)) if winner is not None]
        assert len(winners) == 1
        assert read(storage, "contested", 0, 1000) == bytes(winners) * 1000
        assert storage.stat("contested").metadata == {"attempt": str(winners[0])}

    def test_metadata_round_trips(self, storage: ChunkStorage) -> None:
        metadata = {"segment-name": "w7xvZ3M_-=", "epoch": "17", "crc32c": "00ff", "text": "two words; a=b", "x.y": "~"}
        assert put(storage, "object", b"", **metadata).metadata == metadata
        assert put(storage, "bare").metadata == {}
        large = {f"key{n}": "v" * 250 for n in range(8)}
        large["key0"] = "v" * (250 - 8 * 4 - 16)
        assert put(storage, "large", b"", **large).metadata == large

    def test_delete_is_idempotent(self, storage: ChunkStorage) -> None:
        put(storage, "a/b/object")
        put(storage, "a/other")
        for _ in range(2):
            storage.delete("a/b/object")
        assert names(storage) == ["a/other"]
        put(storage, "a/b/object", b"again")
        assert read(storage, "a/b/object", 0, 5) == b"again"

    def test_many_objects_are_deleted_together_or_said_not_to_be(self, storage: ChunkStorage) -> None:
        gone = ["a/b/object", "a/ü &+%", "a/missing"]
        for name in [*gone[:-1], "a/other"]:
            put(storage, name)
        for _ in range(2):
            if isinstance(storage, ManyDeletes) and storage.delete_many(gone):
                assert names(storage) == ["a/other"]

    def test_missing_names(self, storage: ChunkStorage) -> None:
        put(storage, "a/object")
        for name in ("missing", "a", "a/object2", "a/b/c"):
            with pytest.raises(NotFound):
                storage.stat(name)
            with pytest.raises(NotFound):
                read(storage, name, 0, 1)
            with pytest.raises(NotFound):
                read(storage, name, 0, 0)
            storage.delete(name)
        assert names(storage, "missing") == []
        assert names(storage, "a/b/") == []
        assert names(storage) == ["a/object"]

    def test_list_orders_by_full_name_and_bounds_by_prefix_and_after(self, storage: ChunkStorage) -> None:
        for name in random.Random(1).sample(ORDERED, len(ORDERED)):
            put(storage, name)
        assert sorted(ORDERED, key=str.encode) == ORDERED
        assert names(storage) == ORDERED
        for index, name in enumerate(ORDERED):
            assert names(storage, after=name) == ORDERED[index + 1 :]
        assert names(storage, after="a/") == ORDERED[3:]
        assert names(storage, after="a/y/15") == ORDERED[5:]
        for prefix, after, expected in LISTINGS:
            assert names(storage, prefix, after) == expected, (prefix, after)


class Refuses:
    """What no place may take."""

    def test_negative_offset_is_invalid(self, storage: ChunkStorage) -> None:
        put(storage, "object")
        with pytest.raises(InvalidRequest):
            read(storage, "object", -1, 1)

    def test_metadata_that_not_every_provider_returns_is_refused(self, storage: ChunkStorage) -> None:
        long = {"a": "x" * 2049}
        for metadata in (
            {"Upper": "x"},
            {"": "x"},
            {"a b": "x"},
            {"a_b": "x"},
            {"a": "ü"},
            {"a": " x"},
            {"a": "x\n"},
            long,
        ):
            with pytest.raises(InvalidRequest):
                put(storage, "object", b"bytes", **metadata)
        assert names(storage) == []

    def test_invalid_names(self, storage: ChunkStorage) -> None:
        for name in ("", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b", "x" * 1025, "\udc80"):
            for call in (
                partial(put, storage),
                storage.stat,
                partial(read, storage, offset=0, length_bytes=1),
                storage.delete,
            ):
                with pytest.raises(InvalidRequest):
                    call(name)
        assert names(storage) == []


class Ends:
    """The end of uploads, and of the storage."""

    def test_aborting_an_upload_that_is_gone_is_success(self, storage: ChunkStorage) -> None:
        put(storage, "object")
        for _ in range(2):
            if isinstance(storage, Uploads):
                storage.abort_upload(PendingUpload("object", "2~gone", 0))
        assert names(storage) == ["object"]

    def test_closed(self, storage: ChunkStorage) -> None:
        piece = ObjectPiece("object", 0, 5, put(storage, "object").etag)
        for _ in range(2):
            storage.close()
        calls: list[Callable[[], object]] = [
            lambda: put(storage, "other"),
            lambda: read(storage, "object", 0, 1),
            lambda: storage.stat("object"),
            lambda: storage.delete("object"),
            lambda: storage.compose("made", [piece]),
            lambda: names(storage),
            *([lambda: pending(storage)] if isinstance(storage, Uploads) else []),
        ]
        for call in calls:
            with pytest.raises(Closed):
                call()
