"""Segments of packs are rebuilt from objects alone, and a bad bit costs as little as possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.recovery.recovering import lose_journal, recovered
from tests.app.recovery.test_from_objects import STORE, rebuilt
from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore, open_test_store
from tests.upkeep.check.looking import deep_findings
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.names import REMOVED_PREFIX
from tierfs.base.words.types import CRC_BLOCK_BYTES, AttemptId, ObjectId, SegmentId, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.metadata.store import new_id
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.engine.segments import stat
from tierfs.tiering.packs import format as packs
from tierfs.tiering.packs.format import PackEntry, PackIndex

PACKING = {"chunk_bytes": "1048576", "object_bytes": "1600000"}

either_form = pytest.mark.parametrize("compression", ["off", "zstd"])


def packed(store: TestStore, count: int = 12) -> dict[str, bytes]:
    """Small segments, offloaded into one pack, without a journal; and one that has a pack and an object."""
    data = {f"d/{number:02d}": bytes([number]) * (20_000 + number) for number in range(count)}
    for name, content in data.items():
        store.append(name, content, seal=True)
    store.append("grown", b"begin")
    store.offload()
    store.append("grown", b"x" * 200_000)
    store.offload()
    data["grown"] = b"begin" + b"x" * 200_000
    lose_journal(store.cold)
    return data


@either_form
def test_segments_of_packs_come_back_without_user_metadata(tmp_path: Path, compression: str) -> None:
    with open_test_store(tmp_path / "store", policy=PACKING | {"compression": compression}) as store:
        data = packed(store)
        name, content = pack_of(store)
        store.cold.delete(name)
        store.cold.put(name, BufferSource(bytes(content)), metadata={})  # as a plain copy has it
        with rebuilt(tmp_path / "new", store.cold) as found:
            assert found.left == {}
            for path, expected in data.items():
                assert found.store.read(path, Tier.COLD) == expected
            with found.store.metadata.read() as txn:
                assert {one.name.endswith(".zst") for _, one in txn.scan(OBJECTS)} == {compression == "zstd"}
                assert len([1 for _, one in txn.scan(OBJECTS)]) == 2
                assert stat.segment_crc(txn, found.store.segment("d/03")) == crc32c(data["d/03"])
        with recovered(tmp_path / "again", store.cold) as again:
            for path, expected in data.items():
                assert again.store.read(path) == expected


def pack_of(store: TestStore) -> tuple[str, bytearray]:
    (name,) = [item.name for item in store.cold.list("packs/")]
    content = bytearray(store.cold.stat(name).length_bytes)
    store.cold.read_into(name, 0, memoryview(content))
    return name, content


def test_a_bad_bit_of_a_pack_costs_its_segment_alone(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", policy=PACKING) as store:
        data = packed(store)
        name, content = pack_of(store)
        content[3 * 20_000 + 100] ^= 1
        store.cold.delete(name)
        store.cold.put(name, BufferSource(bytes(content)), metadata={})
        with rebuilt(tmp_path / "new", store.cold) as found:
            ((label, why),) = found.left.items()
            assert label in {f"{name}, d/03 from 0", f"{name}, d/02 from 0"}
            assert "damaged" in why
            del data[label.split(", ")[1].split()[0]]
            for path, expected in data.items():
                assert found.store.read(path, Tier.COLD) == expected


def test_a_bad_bit_of_a_compressed_pack_costs_the_segments_in_its_frame(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", policy=PACKING | {"compression": "zstd"}) as store:
        data = packed(store)
        name, content = pack_of(store)
        contents = packs.read_pack(store.cold, name, len(content))
        assert contents.section is not None
        content[contents.section.sizes[0]] ^= 1  # the second of two frames does not unpack
        hit = {entry.path for entry in contents.index.entries if entry.object_offset + entry.length > CRC_BLOCK_BYTES}
        store.cold.delete(name)
        store.cold.put(name, BufferSource(bytes(content)), metadata={})
        with rebuilt(tmp_path / "new", store.cold) as found:
            assert {label.split(", ")[1].split()[0] for label in found.left} == hit
            assert all("damaged" in why for why in found.left.values())
            for path in data.keys() - hit:
                assert found.store.read(path, Tier.COLD) == data[path]
            assert hit <= data.keys() > hit


@either_form
@pytest.mark.parametrize(("kind", "read"), [("packs/", 1), ("packs/", 2), ("packs/", 3), ("chunk-", 1)])
def test_a_wrong_byte_on_the_wire_costs_no_object(tmp_path: Path, kind: str, read: int, compression: str) -> None:
    with open_test_store(tmp_path / "store", policy=PACKING | {"compression": compression}) as store:
        data = packed(store)
        cold = ScriptedStorage(store.cold)
        cold.damage(-1, on=read, of=kind)
        with rebuilt(tmp_path / "new", cold) as found:
            assert found.left == {}
            for path, expected in data.items():
                assert found.store.read(path, Tier.COLD) == expected
            assert deep_findings(found.store) == []


def test_a_pack_that_contradicts_itself_is_left_aside(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store", policy=PACKING) as store:
        packed(store)
        name, content = pack_of(store)
        for other, data in (
            ("packs/strange", content),
            (name.replace("-e1-", "-e2-"), content),
            (name[:-1] + "x", b"short"),
            (name.replace("packs/0", "packs/1"), content[:-1]),
        ):
            store.cold.put(other, BufferSource(bytes(data)), metadata={})
        with rebuilt(tmp_path / "new", store.cold) as found:
            assert len(found.left) == 4
            assert len(found.rebuilt) == 13


def put_pack(cold: ChunkStorage, *paths: str) -> str:
    """A pack as packing makes it, with four bytes of each segment."""
    attempt = AttemptId(new_id())
    entries = [PackEntry(SegmentId(10 + at), path, 0, 4, 4 * at, crc32c(b"abcd")) for at, path in enumerate(paths)]
    payload = b"abcd" * len(paths)
    data = payload + packs.index_and_trailer(PackIndex(STORE, 1, attempt, 0, tuple(entries)), len(payload))
    name = packs.pack_name(ObjectId(99), 1, attempt, crc32c(data))
    cold.put(name, BufferSource(data))
    return name


def test_what_was_being_removed_costs_a_pack_no_other_segment(cold: MemoryStorage, tmp_path: Path) -> None:
    name = put_pack(cold, "d/a", f"{REMOVED_PREFIX}7/b", "d/c")
    with rebuilt(tmp_path / "new", cold) as found:
        assert set(found.rebuilt) == {"d/a", "d/c"}
        assert found.store.read("d/a") == found.store.read("d/c") == b"abcd"
        assert found.left == {f"{name}, {REMOVED_PREFIX}7/b from 0": "its segment was being removed"}
