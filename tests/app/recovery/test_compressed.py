"""Compressed objects alone tell what they are: their names, and the seek tables at their ends."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests.app.recovery.recovering import lose_journal, recovered
from tests.app.recovery.test_from_objects import STORE, rebuilt
from tests.copied import copy_tier
from tests.stores import TestStore, open_test_store
from tests.upkeep.check.looking import deep_findings
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.types import MIB, ROOT_DIRECTORY, AttemptId, ByteRange, PayloadEncoding, SegmentId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.frames import zstd
from tierfs.engine.frames.frame_map import FRAME_BYTES, MAX_FRAME_BYTES
from tierfs.engine.frames.seek_table import FrameSize, seek_table
from tierfs.engine.metadata import checksums, policies
from tierfs.engine.metadata.records import ChecksumRun, ObjectRecord
from tierfs.engine.metadata.store import new_id
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering.objects import object_name

LINES = b"".join(b"%08d the same words on each line\n" % number for number in range(20_000))


def section(data: bytes, frame_bytes: int = FRAME_BYTES) -> bytes:
    """Frames and their seek table."""
    parts = [data[at : at + frame_bytes] for at in range(0, len(data), frame_bytes)]
    frames = [zstd.compressed(part, 3) for part in parts]
    return b"".join(frames) + seek_table(
        [FrameSize(len(frame), len(part)) for frame, part in zip(frames, parts, strict=True)]
    )


def put(cold: MemoryStorage, start: int, data: bytes, stored: bytes | None = None, *, epoch: int = 1) -> str:
    """An object of the segment `s`, as a copy without user metadata; its stored bytes are `stored`, or `data`."""
    held = ByteRange(start, start + len(data))
    name = object_name(
        "s", SegmentId(10), held, epoch, AttemptId(new_id()), crc32c(data), is_compressed=stored is not None
    )
    cold.put(name, BufferSource(data if stored is None else stored), metadata={"store": STORE})
    return name


def test_mixed_chains_and_joined_objects_are_rebuilt(tmp_path: Path) -> None:
    """Plain, compressed, and joined ones with frames off the grid; of two of one range, either."""
    cold = MemoryStorage()
    cuts = [0, 7, 200_000, 500_001, 640_000, len(LINES)]
    parts = [LINES[start:end] for start, end in pairwise(cuts)]
    put(cold, 0, parts[0], section(parts[0]))
    put(cold, cuts[1], parts[1])
    sections = section(parts[2][:150_000], 50_001) + section(parts[2][150_000:150_001]) + section(parts[2][150_001:])
    put(cold, cuts[2], parts[2], sections)
    put(cold, cuts[3], parts[3], section(parts[3]))
    put(cold, cuts[3], parts[3])
    put(cold, cuts[4], parts[4], section(parts[4], MIB))
    with rebuilt(tmp_path / "new", cold) as found:
        assert found.left.keys() < {item.name for item in cold.list("")}
        assert [why for why in found.left.values()] == ["a newer or larger object contains its bytes"]
        assert found.store.read("s", Tier.COLD) == LINES
        assert deep_findings(found.store) == []
        for record in objects(found.store):
            stored = bytearray(record.stored_bytes)
            cold.read_into(record.name, 0, memoryview(stored))
            compressed = record.name.endswith(".zst")
            assert record.encoding is (PayloadEncoding.ZSTD_FRAMES if compressed else PayloadEncoding.RAW)
            assert record.stored_crc32c == (crc32c(stored) if compressed else None)


def objects(store: TestStore) -> list[ObjectRecord]:
    with store.metadata.read() as txn:
        return [record for _, record in txn.scan(OBJECTS)]


def frame(data: bytes) -> tuple[bytes, FrameSize]:
    stored = zstd.compressed(data, 3)
    return stored, FrameSize(len(stored), len(data))


def _other_bytes(data: bytes) -> bytes:
    return section(data[:-1] + bytes([data[-1] ^ 1]))


def _broken_frame(data: bytes) -> bytes:
    good = bytearray(section(data))
    good[len(good) // 3] ^= 0x40
    return bytes(good)


def _wrong_table(data: bytes) -> bytes:
    """The sum is right, the frames are others."""
    first, second = frame(data[:100_000]), frame(data[100_000:])
    sizes = [replace_plain(first[1], 99_999), replace_plain(second[1], len(data) - 99_999)]
    return first[0] + second[0] + seek_table(sizes)


def replace_plain(size: FrameSize, plain_bytes: int) -> FrameSize:
    return FrameSize(size.stored_bytes, plain_bytes)


def _shorter_table(data: bytes) -> bytes:
    return section(data[:-1])


def _huge_frame(data: bytes) -> bytes:
    """Not a frame that unpacks to so much: only its table says it."""
    stored = bytes(MIB)
    return stored + seek_table([FrameSize(len(stored), MAX_FRAME_BYTES + 1)])


def _bomb(data: bytes) -> bytes:
    """Frames of some bytes, each of which says that it has 4 MiB, and has more."""
    one, size = frame(bytes(2 * MAX_FRAME_BYTES))
    return one * 50 + seek_table([replace_plain(size, MAX_FRAME_BYTES)] * 50)


def _many_frames(data: bytes) -> bytes:
    return section(data[:5000], 1) + section(data[5000:])


def _endless_table(data: bytes) -> bytes:
    return section(data)[:-9] + struct.pack("<IBI", 2**32 - 1, 0, 0x8F92EAB1)


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "other bytes": (_other_bytes, "the CRC32C of its plain bytes"),
    "a frame": (_broken_frame, "does not unpack"),
    "sizes": (_wrong_table, "does not unpack"),
    "fewer bytes": (_shorter_table, "its seek table has frames of"),
    "a frame over the limit": (_huge_frame, f"at most {MAX_FRAME_BYTES} are read"),
    "a bomb": (_bomb, "its seek table has frames of"),
    "a frame for each byte": (_many_frames, "its seek table has too many frames"),
    "a table without end": (_endless_table, "it has 4294967295 frames"),
    "no table": (lambda data: data, "its last bytes are those of no seek table"),
    "nothing": (lambda data: b"", "it has 0 bytes"),
    "a cut": (lambda data: section(data)[1:], "its frames have more bytes than are before it"),
}


@pytest.mark.parametrize(("damage", "why"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_object_is_left_out_like_a_plain_one(
    tmp_path: Path, damage: Callable[[bytes], bytes], why: str
) -> None:
    """The smaller objects that it was made of are there: nothing is lost but what it alone held."""
    cold = MemoryStorage()
    put(cold, 0, LINES[:300_000])
    put(cold, 300_000, LINES[300_000:400_000], section(LINES[300_000:400_000]))
    bad = put(cold, 0, LINES, damage(LINES))
    with rebuilt(tmp_path / "new", cold) as found:
        assert why in found.left[bad]
        assert found.store.read("s", Tier.COLD) == LINES[:400_000]
        assert deep_findings(found.store) == []


POLICY = {"chunk_bytes": str(MIB), "object_bytes": str(MIB)}
CHANGES: dict[str, Sequence[str]] = {
    "compressed": ["zstd", "zstd"],
    "then plain": ["zstd", "off"],
    "then compressed": ["off", "auto"],
}


def filled(store: TestStore, compressions: Sequence[str]) -> bytes:
    """A segment that was offloaded in pieces, each under another policy."""
    for number, compression in enumerate(compressions, 1):
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {**POLICY, "compression": compression})
        store.append("s", LINES, seal=number == len(compressions))
        store.offload()
    store.cold_tier()[0].publish()
    return LINES * len(compressions)


@pytest.mark.parametrize("compressions", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("told", ["journal", "objects", "names"])
def test_a_lost_host(tmp_path: Path, compressions: Sequence[str], told: str) -> None:
    """From the journal, from objects alone, and from a copy without metadata: rows and bytes are the same."""
    with open_test_store(tmp_path / "store", policy=POLICY) as store:
        data = filled(store, compressions)
        rows, cold_objects = runs(store), [record for record in objects(store) if record.tier is Tier.COLD]
        made = [facts(record) for record in cold_objects]
        cold = store.cold
        if told == "names":
            copy_tier(cold)
    compressed = sum(record.encoding is PayloadEncoding.ZSTD_FRAMES for record in cold_objects)
    assert compressed == sum(compression != "off" for compression in compressions)
    if told == "journal":
        with recovered(tmp_path / "new", cold) as done:
            check(done.store, data, rows, made)
        return
    lose_journal(cold)
    with rebuilt(tmp_path / "new", cold) as found:
        assert (found.left, found.unproven) == ({}, [])
        check(found.store, data, rows, made)


def check(store: TestStore, data: bytes, rows: list[list[ChecksumRun]], made: list[tuple[object, ...]]) -> None:
    assert store.read("s", Tier.COLD) == data
    assert deep_findings(store) == []
    assert runs(store) == rows
    assert [facts(record) for record in objects(store)] == made


def facts(record: ObjectRecord) -> tuple[object, ...]:
    """What a rebuild finds out about an object."""
    stored = record.encoding, record.stored_length, record.stored_crc32c
    return record.name, record.length, record.tier, record.crc32c, record.attempt, *stored


def runs(store: TestStore) -> list[list[ChecksumRun]]:
    with store.metadata.read() as txn:
        return [list(checksums.runs(txn, record.id)) for _, record in txn.scan(OBJECTS) if record.tier is Tier.COLD]


PACKING = {"chunk_bytes": "1048576", "object_bytes": "16000000", "compression": "zstd"}


@pytest.mark.parametrize("damaged", [False, True])
def test_segments_of_a_compressed_pack(tmp_path: Path, damaged: bool) -> None:
    """A bad bit costs those with bytes in its frame."""
    data = {f"d/{number:02}": LINES[number * 20_000 : (number + 1) * 20_000] for number in range(12)}
    with open_test_store(tmp_path / "store", policy=PACKING) as store:
        for name, text in data.items():
            store.append(name, text, seal=True)
        store.offload()
        cold = store.cold
        lose_journal(cold)
        copy_tier(cold)
        (pack,) = [item.name for item in cold.list("packs/")]
        if damaged:
            content = bytearray(cold.stat(pack).length_bytes)
            cold.read_into(pack, 0, memoryview(content))
            content[40] ^= 1
            cold.put(pack, BufferSource(bytes(content)), create_only=False, metadata={})
        lost = [name for name in data if damaged and name <= f"d/{FRAME_BYTES // 20_000:02}"]
        with rebuilt(tmp_path / "new", cold) as found:
            assert found.left.keys() == {f"{pack}, {name} from 0" for name in lost}
            assert {name: found.store.read(name, Tier.COLD) for name in data if name not in lost} == {
                name: text for name, text in data.items() if name not in lost
            }
            (record,) = objects(found.store)
            assert (record.encoding, record.length) == (PayloadEncoding.ZSTD_FRAMES, 12 * 20_000)
            assert deep_findings(found.store) == []
