"""Consolidation with compressed objects: what is joined as it is stored, and what is compressed anew."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.app.recovery.recovering import lose_journal
from tests.app.recovery.test_from_objects import rebuilt
from tests.conformance.storages import opened
from tests.stores import TestStore, assert_layout, open_test_store
from tests.tiering.cold_pieces import BLOCK, GRACE_S, cut_head, objects, rows
from tests.tiering.test_consolidate import Killed, dying
from tests.tiering.test_quota import limit
from tierfs.base.bytes.checksum import block_crcs, crc32c
from tierfs.base.words.errors import DataLoss, QuotaReached, Unavailable
from tierfs.base.words.types import MIB, ROOT_DIRECTORY, ChunkState, PayloadEncoding, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ComposedObject, Source, StoredObject
from tierfs.engine.frames.seek_table import read_sections
from tierfs.engine.metadata import checksums, policies
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.tiering import joined_frames
from tierfs.tiering import objects as objects_made
from tierfs.tiering.consolidate import ConsolidateRecipe

POLICY = {"chunk_bytes": "100000000", "object_bytes": "30000000", "compression": "zstd", "compression_level": "1"}


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of any length are worth joining."""
    monkeypatch.setattr(joined_frames, "COPIED_BYTES", 1)


def text(size: int) -> bytes:
    """Bytes that compress to half."""
    return random.Random(size).randbytes(size).translate(b"abcdefgh12345678" * 16)


def add(store: TestStore, *parts: bytes, compression: str | None = None) -> bytes:
    """Append so that each part becomes a cold object of its own; return the bytes."""
    if compression is not None:
        set_compression(store, compression)
    for part in parts:
        store.append("s", part)
        store.offload("s")
        store.evict("s")
    return b"".join(parts)


def set_compression(store: TestStore, compression: str, **more: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, POLICY | {"compression": compression} | more)


def placed(store: TestStore) -> list[ObjectRecord]:
    return [each.object for each in store.layout("s").cold]


def stored(store: TestStore, record: ObjectRecord) -> bytes:
    held = bytearray(record.stored_bytes)
    store.cold.read_into(record.name, 0, memoryview(held))
    return bytes(held)


def assert_sound(store: TestStore, data: bytes, start: int = 0) -> None:
    """The object has the bytes, and all that its record and its rows say of it is true."""
    (record,) = placed(store)
    assert store.read("s", Tier.COLD)[start:] == data[start:]
    held, plain = stored(store, record), data[start:]
    assert (record.length, record.crc32c) == (len(plain), crc32c(plain))
    with store.metadata.read() as txn:
        found = list(checksums.runs(txn, record.id))
    assert [run.crc(index) for run in found for index in range(run.count)] == block_crcs(plain)
    if record.encoding is PayloadEncoding.RAW:
        assert (held, record.name.endswith(".zst")) == (plain, False)
        return
    assert record.name.endswith(f"-c{crc32c(plain):08x}.zst")
    assert (record.stored_length, record.stored_crc32c) == (len(held), crc32c(held))
    assert subprocess.run(["zstd", "-dc"], input=held, capture_output=True, check=True).stdout == plain


def sections(store: TestStore) -> int:
    (record,) = placed(store)
    held = stored(store, record)
    return len(read_sections(lambda start, end: held[start:end], len(held), 1 << 20))


def consolidated(store: TestStore) -> tuple[int, int]:
    """Consolidate; return the new object's stored bytes and those that this machine uploaded."""
    before = len(placed(store))
    report = store.consolidate()
    assert (report.objects_before, report.objects_after) == (before, 1)
    return report.bytes, report.client_bytes


SIZES = [
    (300_000, 2, BLOCK, 500_001),
    (BLOCK, BLOCK, 2 * BLOCK),
    (1, 1, 1),
    (BLOCK - 1, BLOCK + 1),
    (256 * BLOCK, 256 * BLOCK),
    (256 * BLOCK - 5, 7, 1, BLOCK),
]


@pytest.mark.parametrize("sizes", SIZES)
def test_whole_compressed_objects_are_joined_as_they_are_stored(
    store: TestStore, joins: None, sizes: Sequence[int]
) -> None:
    set_compression(store, "zstd", object_bytes="100000000")
    data = add(store, *map(text, sizes))
    parts = [stored(store, record) for record in placed(store)]
    assert consolidated(store)[1] == 0
    assert_sound(store, data)
    assert stored(store, placed(store)[0]) == b"".join(parts)
    assert sections(store) == len(sizes)


@pytest.mark.parametrize("sizes", [(300_000, 5), (256 * BLOCK, BLOCK), (255 * BLOCK + 1, BLOCK - 1, 3)])
def test_joined_objects_are_joined_again(store: TestStore, joins: None, sizes: Sequence[int]) -> None:
    """Also where a seek table is between two rows."""
    set_compression(store, "zstd", object_bytes="100000000")
    data = add(store, *map(text, sizes))
    store.consolidate()
    data += add(store, *map(text, (1000, 200_000)))
    assert consolidated(store)[1] == 0
    assert_sound(store, data)
    assert sections(store) == len(sizes) + 2


@pytest.mark.parametrize("start", [1, 50_000, BLOCK, 299_999])
@pytest.mark.parametrize("compression", ["zstd", "off"])
def test_parts_of_compressed_objects_are_made_again(
    store: TestStore, joins: None, start: int, compression: str
) -> None:
    data = add(store, *map(text, (300_000, 2, BLOCK, 500_001)))
    cut_head(store, "s", start)
    set_compression(store, compression)
    stored_bytes, client_bytes = consolidated(store)
    assert stored_bytes == client_bytes == placed(store)[0].stored_bytes
    assert_sound(store, data, start)
    assert placed(store)[0].name.endswith(".zst") == (compression == "zstd")


def test_small_objects_become_frames_of_one(store: TestStore) -> None:
    """The server would not copy them by itself."""
    data = add(store, *(text(50_000 + size) for size in range(6)))
    stored_bytes, client_bytes = consolidated(store)
    assert client_bytes == stored_bytes < len(data) * 0.6
    assert_sound(store, data)
    assert sections(store) == 1


def test_what_the_server_copies_by_itself_is_joined(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least half of the stored bytes are in objects of such a length."""
    monkeypatch.setattr(joined_frames, "COPIED_BYTES", 100_000)
    data = add(store, os.urandom(100_000), os.urandom(99_000))
    store.consolidate()
    assert_sound(store, data)
    assert sections(store) == 2
    data += add(store, *(os.urandom(60_000) for _ in range(4)))
    store.consolidate()
    assert_sound(store, data)
    assert sections(store) == 1


@pytest.mark.parametrize("before", ["off", "zstd"])
@pytest.mark.parametrize("after", ["off", "zstd", "auto"])
@pytest.mark.parametrize("kind", [text, os.urandom])
def test_plain_and_compressed_objects_become_one_by_the_policy_in_force(
    store: TestStore, before: str, after: str, kind: Callable[[int], bytes]
) -> None:
    data = add(store, kind(300_000), compression=before)
    data += add(store, kind(100_001), compression="off" if before == "zstd" else "zstd")
    set_compression(store, after)
    stored_bytes, client_bytes = consolidated(store)
    assert stored_bytes == client_bytes
    assert_sound(store, data)
    is_compressed = after == "zstd" or (after == "auto" and kind is text)
    assert placed(store)[0].name.endswith(".zst") == is_compressed


@pytest.mark.parametrize("compression", ["zstd", "auto"])
def test_plain_objects_are_compressed_when_they_are_joined(store: TestStore, compression: str) -> None:
    data = add(store, *map(text, (300_000, 2, BLOCK)), compression="off")
    set_compression(store, compression)
    assert consolidated(store)[0] < len(data) * 0.6
    assert_sound(store, data)


def test_plain_objects_that_do_not_shrink_are_joined_by_the_server(store: TestStore) -> None:
    data = add(store, *map(os.urandom, (300_000, 2, BLOCK)), compression="off")
    set_compression(store, "auto")
    assert consolidated(store) == (len(data), 0)
    assert_sound(store, data)


def test_no_policy_unpacks_what_is_compressed_and_large(store: TestStore, joins: None) -> None:
    data = add(store, *map(text, (300_000, 2)))
    set_compression(store, "off")
    assert consolidated(store)[1] == 0
    assert_sound(store, data)
    assert sections(store) == 2


class Way:
    """A way to make the new object: which objects there are, and which policy is in force."""

    JOINED = "joined as they are stored"
    REWRITTEN = "compressed anew"
    UNPACKED = "unpacked"


WAYS = [Way.JOINED, Way.REWRITTEN, Way.UNPACKED]


def two_objects(store: TestStore, way: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Add two objects that become one in this way."""
    data = add(store, *map(text, (300_000, 200_000)))
    if way == Way.JOINED:
        monkeypatch.setattr(joined_frames, "COPIED_BYTES", 1)
    if way == Way.UNPACKED:
        set_compression(store, "off")
    return data


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("owner", "verb", "after", "left", "made"),
    [
        (objects_made, "_intend", False, 0, 0),
        (ConsolidateRecipe, "write", False, 1, 0),
        (ConsolidateRecipe, "write", True, 1, 1),
        (ConsolidateRecipe, "verify", True, 1, 1),
        (ConsolidateRecipe, "link", False, 1, 1),
        (ConsolidateRecipe, "link", True, 0, 1),
    ],
)
def test_a_crash_at_any_step_loses_nothing(
    store: TestStore,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    owner: object,
    verb: str,
    after: bool,
    left: int,
    made: int,
) -> None:
    data = two_objects(store, way, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(owner, verb, dying(owner, verb, after=after))
        with pytest.raises(Killed):
            store.consolidate()
    assert (rows(store)[0], len(objects(store))) == (left, 2 + made)
    assert store.read("s", Tier.COLD) == data
    store.consolidate()
    store.clock.advance(2 * 3600)
    store.settle()
    assert len(objects(store)) == 1
    assert rows(store) == (0, 0)
    assert_sound(store, data)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("meddled", ["write", "verify"])
def test_chunks_that_move_meanwhile_are_planned_anew(
    store: TestStore, monkeypatch: pytest.MonkeyPatch, way: str, meddled: str
) -> None:
    data = two_objects(store, way, monkeypatch)
    original, moved = getattr(ConsolidateRecipe, meddled), []

    def move(self: ConsolidateRecipe, *arguments: object) -> object:
        done = original(self, *arguments)
        if not moved:
            moved.append(store.engine.truncate("s", 300_001, cold_due_ms=store.clock.now_ms()))
        return done

    monkeypatch.setattr(ConsolidateRecipe, meddled, move)
    store.consolidate()
    assert moved
    assert_layout(store, "s", local=[], cold=[200_000])
    assert store.read("s", Tier.COLD)[300_001:] == data[300_001:]
    store.clock.advance(2 * 3600)
    store.settle()
    assert len(objects(store)) == 1


def rewrite(store: TestStore, name: str, change: Callable[[bytearray], None]) -> None:
    """Change an object's stored bytes, as another tool does."""
    held = bytearray(store.cold.stat(name).length_bytes)
    store.cold.read_into(name, 0, memoryview(held))
    change(held)
    store.cold.put(name, BufferSource(held), create_only=False)


def flip(offset: int) -> Callable[[bytearray], None]:
    def change(held: bytearray) -> None:
        held[offset] ^= 1

    return change


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_frame_makes_its_chunk_suspect(store: TestStore, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    two_objects(store, way, monkeypatch)
    rewrite(store, placed(store)[1].name, flip(1000))
    with pytest.raises(DataLoss, match="does not match its checksum"):
        store.consolidate()
    assert [each.chunk.state for each in store.layout("s").cold] == [ChunkState.GOOD, ChunkState.SUSPECT]
    store.clock.advance(GRACE_S + 1)
    store.settle()
    assert len(objects(store)) == 2
    assert store.consolidate().objects_before == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_etag_is_met(store: TestStore, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    data = two_objects(store, way, monkeypatch)
    for record in placed(store):
        rewrite(store, record.name, lambda held: None)
    store.consolidate()
    assert_sound(store, data)


@pytest.mark.parametrize("number", [0, 1])
def test_objects_with_a_damaged_seek_table_are_compressed_again(store: TestStore, joins: None, number: int) -> None:
    """Their plain bytes are right, and accuse no chunk; the damage is not copied."""
    data = add(store, *map(text, (300_000, 200_000)))
    rewrite(store, placed(store)[number].name, flip(-12))
    assert consolidated(store)[1]
    assert_sound(store, data)
    assert sections(store) == 1
    store.clock.advance(2 * 3600)
    store.settle()
    assert len(objects(store)) == 1


class Corrupting(MemoryStorage):
    """Makes other objects than it should, once it is told at which byte."""

    at: int | None = None

    def put(self, name: str, source: Source, **named: Any) -> StoredObject:
        if self.at is not None and name.startswith("segments/"):
            held = bytearray(source.read(0, source.length_bytes))
            held[self.at] ^= 1
            source = BufferSource(held)
        return super().put(name, source, **named)

    def compose(self, name: str, *arguments: Any, **named: Any) -> ComposedObject:
        made = super().compose(name, *arguments, **named)
        held = bytearray(made.length_bytes)
        self.read_into(name, 0, memoryview(held))
        self.delete(name)
        return ComposedObject.of(self.put(name, BufferSource(held), **named))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [200, -15], ids=["a frame", "the seek table"])
def test_a_copy_that_differs_is_never_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, at: int
) -> None:
    storage = Corrupting()
    with open_test_store(tmp_path / "s", policy=POLICY, cold=storage) as store:
        data = two_objects(store, way, monkeypatch)
        storage.at = at
        with pytest.raises(Unavailable, match="no byte is lost"):
            store.consolidate()
        storage.at = None
        assert [each.chunk.state for each in store.layout("s").cold] == [ChunkState.GOOD, ChunkState.GOOD]
        assert store.read("s", Tier.COLD) == data
        store.settle()
        assert len(objects(store)) == 2


def test_a_quota_counts_stored_bytes(store: TestStore) -> None:
    data = add(store, *map(text, (300_000, 200_000)))
    held = sum(record.stored_bytes for record in placed(store))
    limit(store, held + 1000)
    with pytest.raises(QuotaReached):
        store.consolidate()
    assert store.read("s", Tier.COLD) == data
    limit(store, 3 * held)
    store.consolidate()
    assert_sound(store, data)


@pytest.mark.s3
def test_ceph_joins_large_objects_and_they_are_found_without_a_journal(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The server copies all of them; a recovery reads the sections at their ends."""
    with opened("rgw", request) as storage:
        with open_test_store(tmp_path / "s", policy=POLICY, cold=storage) as store:
            set_compression(store, "zstd", object_bytes="100000000")
            data = add(store, *(text(12_000_000 + number) for number in range(3)), text(100_000))
            assert consolidated(store)[1] == 0
            assert_sound(store, data)
            assert sections(store) == 4
            store.clock.advance(2 * 3600)
            store.settle()
        lose_journal(storage)
        with rebuilt(tmp_path / "again", storage) as again:
            assert_sound(again.store, data)


def test_packs_and_chunks_become_one(store: TestStore) -> None:
    """A chunk of a compressed pack shares blocks and frames with other segments."""
    data = add(store, text(300_000))
    store.settings = replace(store.settings, pack_below_bytes=MIB)
    for name, part in (("a", b"a" * 5000), ("s", text(100_000)), ("t", text(7000))):
        store.append(name, part)
    data += text(100_000)
    store.offload()
    store.evict()
    assert [record.packed for record in placed(store)] == [0, 3]
    assert placed(store)[1].encoding is PayloadEncoding.ZSTD_FRAMES
    store.consolidate("s")
    assert_sound(store, data)
    assert store.read("a", Tier.COLD) == b"a" * 5000
