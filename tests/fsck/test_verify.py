"""verify: every byte of every copy, the CRC32C of the whole, and marks on what is bad."""

from __future__ import annotations

import random

import pytest

from tests.fsck.looking import flip_cold, flip_local, scrubber
from tests.stores import TestStore
from tierfs.fsck.scrub.verify import Verified, Verifier
from tierfs.metadata import chains, tables
from tierfs.metadata.tables import SEGMENTS
from tierfs.parallel import Meter
from tierfs.segments import stat
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, ChunkState, Tier

POLICY = {"chunk_bytes": str(MIB), "object_bytes": str(3 * MIB)}


@pytest.fixture
def store(store: TestStore) -> TestStore:
    store.append("s", random.Random(1).randbytes(3 * MIB + 77_777), seal=True)
    return store


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
