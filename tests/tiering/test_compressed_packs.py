"""Compressed packs: many small segments in shared frames, an index that is read without them, policies that differ."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.doubles.scripted_storage import ScriptedStorage
from tests.safety.refused import refused
from tests.stores import TestStore, open_test_store
from tierfs.app.recovery.object_headers import header_of
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options.config import OffloadSettings
from tierfs.base.options.policy import Policy
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import (
    CRC_BLOCK_BYTES,
    Ack,
    AttemptId,
    ChunkState,
    Compression,
    ObjectId,
    PayloadEncoding,
    SegmentId,
    Tier,
)
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.frames import skipped, zstd
from tierfs.engine.frames.seek_table import FrameSize, seek_table
from tierfs.engine.metadata import directories, policies, tables
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering import compressed_source
from tierfs.tiering.candidates import PackAction, objects_to_make, packed
from tierfs.tiering.packs import format as pack
from tierfs.tiering.packs.format import PackEntry, PackIndex, read_index, read_pack
from tierfs.tiering.packs.pack_policy import of_pack

POLICY = {"chunk_bytes": "1048576", "object_bytes": str(16 * 100_000), "compression": "zstd"}
SETTINGS = OffloadSettings(relocate_min_bytes=1000)


def lines(size: int, seed: int = 0) -> bytes:
    """Log lines, which shrink."""
    rng, out = random.Random(seed), b""
    while len(out) < size:
        out += b"2026-11-30 10.0.%d.%d GET /index.html 200 %d\n" % (
            rng.randrange(9),
            rng.randrange(99),
            rng.randrange(9),
        )
    return out[:size]


def fill(store: TestStore, count: int = 20, size: int = 3000) -> dict[str, bytes]:
    data = {f"d{number % 3}/s{number:03d}": lines(size + number, number) for number in range(count)}
    for name, content in data.items():
        store.append(name, content, seal=True)
    return data


def packs(store: TestStore) -> list[str]:
    return [found.name for found in store.cold.list("packs/")]


def pack_records(store: TestStore) -> list[ObjectRecord]:
    with store.metadata.read() as txn:
        return [record for _, record in txn.scan(OBJECTS) if record.packed]


def stored(store: TestStore, name: str) -> bytes:
    data = bytearray(store.cold.stat(name).length_bytes)
    store.cold.read_into(name, 0, memoryview(data))
    return bytes(data)


def set_policy(store: TestStore, path: str, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, directories.must_find(txn, path).id, settings)


def unpacked(data: bytes) -> bytes:
    """What the program makes of an object that somebody copied."""
    return subprocess.run([shutil.which("zstd") or "zstd", "-dc"], input=data, check=True, capture_output=True).stdout


@pytest.mark.parametrize("total", [300, CRC_BLOCK_BYTES - 1, CRC_BLOCK_BYTES, CRC_BLOCK_BYTES + 1, 3 * CRC_BLOCK_BYTES])
@pytest.mark.parametrize("kept", [True, False], ids=["frames kept", "frames made twice"])
def test_a_pack_is_the_payloads_to_zstd_and_names_them(
    store: TestStore, tmp_path: Path, total: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_bytes = total if kept else 0
    monkeypatch.setattr(compressed_source, "ROOM", room := compressed_source.FrameRoom(room_bytes))
    rest = {5: total % 6}
    data = {f"d/s{number}": lines(total // 6 + rest.get(number, 0), number) for number in range(6)}
    for name, content in data.items():
        store.append(name, content, seal=True)
    assert store.offload().objects == 1
    store.evict()
    assert room.left_bytes == room_bytes
    (name,), (record,) = packs(store), pack_records(store)
    whole, payload = stored(store, name), b"".join(data[name] for name in sorted(data))
    assert unpacked(whole) == payload
    assert name.endswith(f"-c{crc32c(payload):08x}.zst")
    assert (record.encoding, record.length, record.stored_length) == (PayloadEncoding.ZSTD_FRAMES, total, len(whole))
    assert (record.crc32c, record.stored_crc32c) == (crc32c(payload), crc32c(whole))
    contents = read_pack(store.cold, name, len(whole))
    assert contents.payload_bytes == total
    assert {
        entry.path: payload[entry.object_offset : entry.object_offset + entry.length]
        for entry in contents.index.entries
    } == data
    shown = header_of(store.cold, name)
    assert shown.wrong == []
    assert {key: shown.fields[key] for key in ("encoding", "plain_bytes", "frames", "ratio")} == {
        "encoding": "zstd frames",
        "plain_bytes": total,
        "frames": -(-total // CRC_BLOCK_BYTES),
        "ratio": round(total / len(whole), 2),
    }
    for name, content in data.items():
        assert store.read(name, Tier.COLD) == content
    with recovered(tmp_path / "again", store.cold) as again:
        assert {name: again.store.read(name, Tier.COLD) for name in data} == data


@pytest.mark.parametrize("tail_bytes", [16, 100, 4096])
def test_an_index_is_found_with_one_read_a_long_one_with_more(
    store: TestStore, storage: ScriptedStorage, tail_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fill(store)
    store.offload()
    (name,) = packs(store)
    storage.reads.clear()
    monkeypatch.setattr(pack, "TAIL_BYTES", tail_bytes)
    index = read_index(store.cold, name, store.cold.stat(name).length_bytes)
    assert [entry.path for entry in index.entries] == sorted(data)
    assert len(storage.reads) == {16: 3, 100: 2, 4096: 1}[tail_bytes]


def test_segments_that_do_not_shrink_are_packed_as_they_are(store: TestStore) -> None:
    set_policy(store, "", **{**POLICY, "compression": "auto"})
    data = {f"s{number}": random.Random(number).randbytes(3000) for number in range(3)}
    for name, content in data.items():
        store.append(name, content, seal=True)
    store.offload()
    ((name,), (record,)) = packs(store), pack_records(store)
    assert (record.encoding, record.length) == (PayloadEncoding.RAW, store.cold.stat(name).length_bytes)
    assert [entry.path for entry in read_index(store.cold, name, record.length).entries] == sorted(data)
    assert {name: store.read(name, Tier.COLD) for name in data} == data


def wishes(store: TestStore) -> dict[str, bool]:
    """Whether the pack of each segment is compressed, as its record and its name say."""
    found = {}
    for record in pack_records(store):
        is_compressed = record.encoding is PayloadEncoding.ZSTD_FRAMES
        assert record.name.endswith(".zst") is is_compressed
        for entry in read_index(store.cold, record.name, record.stored_bytes).entries:
            found[entry.path] = is_compressed
    return found


def test_segments_with_other_wishes_share_no_pack(store: TestStore) -> None:
    data = fill(store)
    set_policy(store, "d1", compression="off")
    set_policy(store, "d2", compression="auto", compression_level="19")
    store.offload()
    assert wishes(store) == {name: not name.startswith("d1/") for name in data}
    assert len(packs(store)) == 2
    assert {name: store.read(name, Tier.COLD) for name in data} == data


def test_a_plan_fills_a_pack_for_each_wish(store: TestStore) -> None:
    data = fill(store, 8)
    set_policy(store, "d1", compression="off")
    with store.metadata.read() as txn:
        actions = [action for name in data for action in objects_to_make(txn, store.segment(name))]
    groups = [group for group in packed(actions, below_bytes=10_000) if isinstance(group, PackAction)]
    assert [[action.compresses for action in group.actions] for group in groups] == [[True] * 5, [False] * 3]


def test_a_policy_that_changes_after_the_plan_is_obeyed(store: TestStore) -> None:
    data = fill(store, 6)
    with store.metadata.read() as txn:
        actions = [action for name in data for action in objects_to_make(txn, store.segment(name))]
    set_policy(store, "d1", compression="off")
    with store.holding() as work:
        assert len(work.pack(PackAction(tuple(actions))).segments) == 6
    assert wishes(store) == {name: not name.startswith("d1/") for name in data}


@pytest.mark.parametrize(
    ("wanted", "level"),
    [
        ([Compression.OFF, Compression.OFF], 3),
        ([Compression.AUTO, Compression.AUTO], 7),
        ([Compression.AUTO, Compression.ZSTD], 7),
    ],
)
def test_a_pack_has_the_strongest_wish_of_its_segments(wanted: list[Compression], level: int) -> None:
    each = [replace(Policy(), compression=wish, compression_level=level - number) for number, wish in enumerate(wanted)]
    found = of_pack(each)
    assert (found.compression, found.compression_level) == (wanted[-1], level)


# Damage and death


def test_a_damaged_chunk_is_left_out_and_the_others_are_cold(store: TestStore) -> None:
    data = fill(store, 5)
    path = store.files.root / store.layout("d1/s001").local[0].object.name
    path.chmod(0o600)
    path.write_bytes(b"x" * len(data["d1/s001"]))
    with pytest.raises(DataLoss, match="does not match its checksums"):
        store.offload()
    assert store.layout("d1/s001").local[0].chunk.state is ChunkState.SUSPECT
    assert wishes(store) == {name: True for name in data if name != "d1/s001"}
    for name in data.keys() - {"d1/s001"}:
        assert store.read(name, Tier.COLD) == data[name]


# Hostile packs

ATTEMPT = AttemptId("1" * 32)
NAME = pack.pack_name(ObjectId(7), 1, ATTEMPT, 0, is_compressed=True)
PAYLOAD = lines(2000)
ENTRIES = (PackEntry(SegmentId(1), "a", 0, 2000, 0, crc32c(PAYLOAD)),)


def made(
    frames: Sequence[bytes],
    sizes: Sequence[FrameSize],
    *,
    entries: Sequence[PackEntry] = ENTRIES,
    payload_bytes: int = len(PAYLOAD),
    version: int = pack.COMPRESSED_VERSION,
    before: bytes = b"",
    plain_of_index: int = 0,
    frame: Callable[[bytes], bytes] = skipped.skipped,
) -> bytes:
    index = PackIndex("0" * 32, 1, ATTEMPT, 0, tuple(entries))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack, "COMPRESSED_VERSION", version)
        tail = frame(bytes(skipped.content_of(pack.index_frame(index, payload_bytes))))
    return before + b"".join(frames) + tail + seek_table([*sizes, FrameSize(len(tail), plain_of_index)])


FRAME = zstd.compressed(PAYLOAD, 3)
SIZE = FrameSize(len(FRAME), len(PAYLOAD))
SOUND = made([FRAME], [SIZE])


def entry(**fields: int) -> Sequence[PackEntry]:
    return (replace(ENTRIES[0], **fields),)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (made([FRAME], [SIZE], payload_bytes=1999), "its index is at another offset"),
        (made([FRAME], [SIZE], payload_bytes=2**63), "its index is at another offset"),
        (made([FRAME], [FrameSize(len(FRAME), 1999)]), "its index is at another offset"),
        (made([FRAME], [SIZE], entries=entry(length=2001)), "an entry is at 0 to 2001"),
        (made([FRAME], [SIZE], entries=entry(object_offset=2**64 - 1)), "an entry is at"),
        (made([FRAME], [SIZE], entries=entry(segment_id=0)), "an entry of segment 0"),
        (made([FRAME], [SIZE], version=1), "format version 1"),
        (made([FRAME], [SIZE], version=3), "format version 3"),
        (made([FRAME], [SIZE], before=SOUND), "does not name all its bytes"),
        (made([FRAME], [SIZE], plain_of_index=1), "no frame that zstd skips"),
        (made([FRAME, FRAME], [SIZE, FrameSize(len(FRAME), 0)]), "no frame that zstd skips"),
        (made([FRAME], [SIZE], frame=lambda data: data), "that zstd skips"),
        (made([FRAME], [SIZE], frame=lambda data: skipped.skipped(data) + b"x"), "that zstd skips"),
        (made([FRAME], [SIZE], frame=lambda data: b"Q" + skipped.skipped(data)[1:]), "that zstd skips"),
        (made([FRAME], [SIZE], frame=lambda _: skipped.skipped(b"short")), "it is too short"),
        (FRAME + seek_table([SIZE]), "no frame that zstd skips"),
        (seek_table([]) + bytes(30), "seek table"),
        (bytes(40) + seek_table([]), "does not name all its bytes"),
        (SOUND[:-1], "seek table"),
        (SOUND[:-40], "seek table"),
        (SOUND[:20], "it has 20 bytes"),
    ],
    ids=[
        "payloads longer than said",
        "payloads of any length",
        "a frame shorter than said",
        "an entry beyond the payloads",
        "an entry far away",
        "an entry of no segment",
        "the version of a plain pack",
        "a newer version",
        "two packs in one",
        "an index with content",
        "an empty frame",
        "an index in no frame",
        "bytes after the index",
        "an index in another frame",
        "an index too short",
        "no index",
        "a table first",
        "no frame",
        "an end cut by one byte",
        "an end cut by more",
        "a beginning alone",
    ],
)
def test_what_no_writer_makes_is_refused(storage: ScriptedStorage, data: bytes, why: str) -> None:
    storage.put(NAME, BufferSource(data))
    with pytest.raises(DataLoss, match=why):
        read_index(storage, NAME, len(data))


def test_a_sound_one_is_read(storage: ScriptedStorage) -> None:
    storage.put(NAME, BufferSource(SOUND))
    assert read_pack(storage, NAME, len(SOUND)).index.entries == ENTRIES
    assert unpacked(SOUND) == PAYLOAD


def test_a_long_index_is_refused_before_it_is_read(storage: ScriptedStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.put(NAME, BufferSource(SOUND))
    monkeypatch.setattr(pack, "TAIL_BYTES", 16)
    monkeypatch.setattr(pack, "MAX_INDEX_BYTES", 10)
    with pytest.raises(DataLoss, match="its index has"):
        read_index(storage, NAME, len(SOUND))
    assert max(read.length_bytes for read in storage.reads) < 50


def test_every_flipped_bit_after_the_payloads_is_found(storage: ScriptedStorage) -> None:
    """But for two bits of the seek table's descriptor, which have no meaning."""
    for number in range(8 * len(FRAME), 8 * len(SOUND)):
        data = bytearray(SOUND)
        data[number // 8] ^= 1 << number % 8
        has_meaning = number // 8 - len(SOUND) != -5 or number % 8 > 1
        storage.inner.put(name := f"{NAME[:-12]}{number:08x}.zst", BufferSource(bytes(data)))
        with refused(has_meaning, DataLoss):
            assert read_index(storage, name, len(data)).entries == ENTRIES


def test_names_tell_whether_a_pack_is_compressed() -> None:
    for is_compressed in (True, False):
        name = pack.pack_name(ObjectId(12), 3, ATTEMPT, 0xAB, is_compressed=is_compressed)
        assert pack.parse_name(name) == pack.PackName(ObjectId(12), 3, ATTEMPT, 0xAB, is_compressed)
    assert pack.parse_name(f"{name}.gz") is None


def test_the_index_of_a_compressed_pack_has_its_golden_bytes() -> None:
    frame = pack.index_frame(PackIndex("s", 2, AttemptId("ab"), 1000, ()), 8)
    assert frame[:8] == struct.pack("<II", 0x184D2A50, len(frame) - 8)
    assert frame[-pack.TRAILER_BYTES :][:16] == b"TFSP" + struct.pack(">IQ", 2, 8)


# Repacking


@pytest.mark.parametrize(("before", "after"), [("zstd", "off"), ("off", "zstd"), ("zstd", "zstd"), ("zstd", "mixed")])
def test_what_is_left_of_a_pack_moves_in_the_form_that_its_policy_asks_for(
    tmp_path: Path, before: str, after: str
) -> None:
    with open_test_store(tmp_path / "s", policy={**POLICY, "compression": before}, settings=SETTINGS) as store:
        data = fill(store)
        store.offload()
        store.evict()
        kept = sorted(data)[:2] + sorted(data)[-2:]
        for name in data.keys() - set(kept):
            store.engine.delete(name, recursive=False, cold_due_ms=0)
        set_policy(store, "", **{**POLICY, "compression": "zstd" if after == "mixed" else after})
        if after == "mixed":
            set_policy(store, "d2", compression="off")
        old = packs(store)
        store.offload()
        store.consolidate()
        store.clock.advance(7200)
        store.settle()
        assert not set(old) & set(packs(store))
        assert wishes(store) == {name: after == "zstd" or (after == "mixed" and "d2/" not in name) for name in kept}
        assert {name: store.read(name, Tier.COLD) for name in kept} == {name: data[name] for name in kept}
        with recovered(tmp_path / "again", store.cold) as again:
            for name in kept:
                assert again.store.read(name, Tier.COLD) == data[name]


# Pools


def test_a_pool_of_appends_is_compressed(store: TestStore, tmp_path: Path) -> None:
    store.append("d/s", lines(5000), ack=Ack.COLD)
    assert wishes(store) == {"d/s": True}
    assert unpacked(stored(store, packs(store)[0])) == lines(5000)
    store.append("d/s", lines(700, 1), ack=Ack.COLD)
    assert store.read("d/s", Tier.COLD) == lines(5000) + lines(700, 1)
    with recovered(tmp_path / "again", store.cold) as again:
        assert again.store.read("d/s", Tier.COLD) == lines(5000) + lines(700, 1)


def test_the_row_of_a_pack_says_how_many_share_it(store: TestStore) -> None:
    data = fill(store, 7)
    store.offload()
    (record,) = pack_records(store)
    with store.metadata.read() as txn:
        assert txn.must_get(OBJECTS, tables.u64(record.id), "the pack").references == len(data)
