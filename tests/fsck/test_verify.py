"""verify: every byte of every copy, the CRC32C of the whole, and marks on what is bad."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.fsck.looking import flip_cold, flip_local, scrubber
from tests.stores import TestStore, open_test_store
from tierfs.fsck.scrub.verify import Verified, Verifier
from tierfs.metadata import chains, tables
from tierfs.metadata.tables import SEGMENTS
from tierfs.parallel import Meter
from tierfs.segments import stat
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, ChunkState, Tier

POLICY = {"chunk_bytes": str(MIB), "object_bytes": str(3 * MIB)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", policy=POLICY) as opened:
        opened.append("s", random.Random(1).randbytes(3 * MIB + 77_777), seal=True)
        yield opened


def verify(store: TestStore, name: str = "s", *, marks: bool = True) -> Verified:
    segment = store.segment(name)
    verifier = Verifier(store.metadata, scrubber(store), Meter(), marks=marks)
    (found,) = verifier.run([(name, segment.id, segment.range)])
    return found


def states(store: TestStore, tier: Tier) -> list[ChunkState]:
    with store.metadata.read() as txn:
        return [chunk.state for chunk in chains.chunks(txn, store.segment("s").id, tier)]


def known_crc(store: TestStore) -> int | None:
    with store.metadata.read() as txn:
        return stat.stat(txn, "s").crc32c


def test_a_sound_segment_is_ok_with_the_crc_that_info_tells(store: TestStore) -> None:
    found = verify(store)
    assert (found.ok, found.crc32c, found.bytes) == (True, known_crc(store), 3 * MIB + 77_777)
    store.offload()
    found = verify(store)
    assert (found.ok, found.crc32c, found.bytes) == (True, known_crc(store), 2 * (3 * MIB + 77_777))
    store.evict()
    assert (verify(store).crc32c, verify(store).bytes) == (known_crc(store), 3 * MIB + 77_777)


def test_a_damaged_copy_is_named_by_tier_and_block_and_becomes_suspect(store: TestStore) -> None:
    store.offload()
    flip_cold(store, "s", 2 * MIB + 5)
    found = verify(store)
    assert [(bad.tier, bad.range) for bad in found.bad] == [
        (Tier.COLD, ByteRange(2 * MIB, 2 * MIB + CRC_BLOCK_BYTES)),
    ]
    assert found.crc32c == known_crc(store), "the local copy is good"
    assert states(store, Tier.COLD) == [ChunkState.SUSPECT, ChunkState.GOOD]
    flip_cold(store, "s", 2 * MIB + 5)
    assert verify(store).ok
    assert states(store, Tier.COLD) == [ChunkState.GOOD, ChunkState.GOOD], "good bytes lose the mark"


def test_nothing_is_marked_where_nothing_may_be_changed(store: TestStore) -> None:
    flip_local(store, "s", 0)
    found = verify(store, marks=False)
    assert not found.ok
    assert found.crc32c is None
    assert states(store, Tier.LOCAL) == [ChunkState.GOOD] * 4


def test_lost_extents_are_told(store: TestStore) -> None:
    store.offload()
    store.evict()
    segment = store.segment("s")
    with store.metadata.write() as txn:
        first = next(chains.chunks(txn, segment.id, Tier.COLD))
        segment = chains.remove(txn, segment, Tier.COLD, [first], due_ms=0, after_sequence=0)
        txn.put(SEGMENTS, tables.u64(segment.id), chains.insert_lost(txn, segment, first.range))
    found = verify(store)
    assert (found.lost, found.bad) == ([ByteRange(0, 3 * MIB)], [])
    assert not found.ok


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    data = os.urandom(3 * MIB)
    tierfs("append", "d/s", "--seal", store=path, stdin=data)
    tierfs("offload", store=path)
    crc = tierfs("info", "d/s", "--json", store=path).json["crc32c"]
    assert crc in tierfs("verify", "d", store=path).out
    assert tierfs("verify", "d/s", "--json", store=path).json["crc32c"] == crc
    (file,) = (name for name in (path / "chunks").glob("*/*"))
    file.chmod(0o600)
    with file.open("r+b") as opened:
        opened.seek(MIB + 1)
        opened.write(bytes([data[MIB + 1] ^ 1]))
    done = tierfs("verify", "d", "--json", store=path, check=False)
    assert done.code == 74
    assert done.json["bad"] == [
        {
            "tier": "local",
            "start": MIB,
            "end": MIB + CRC_BLOCK_BYTES,
            "error": "the bytes do not match their checksums",
        }
    ]
    assert "DAMAGED" in tierfs("verify", store=path, check=False).out
    assert tierfs("verify", "nothing", store=path, check=False).code == 3


def test_the_command_fits_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "store"
    tierfs("-q", "init", store=path)
    name = "d" * 200
    tierfs("policy", "set", "/", "chunk_bytes=1MiB", "object_bytes=1MiB", store=path)
    tierfs("append", name, "--seal", store=path, stdin=os.urandom(6 * MIB))
    tierfs("offload", store=path)
    tierfs("evict", "--force", store=path)
    objects = sorted((path / "cold/segments" / name).rglob("chunk-*"))
    for each in objects[:4]:
        each.unlink()
    done = tierfs("verify", name, store=path, check=False)
    first, *rest = done.out.splitlines()
    assert first.endswith(": 4 MiB of the cold copy missing")
    assert rest[0].strip() == f"cold: bytes 0 to {4 * MIB} missing", "objects that follow each other are one line"
    assert max(map(len, rest)) <= 110
