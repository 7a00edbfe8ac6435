"""verify and --deep: every byte of every copy, the CRC32C of the whole, marks on what is bad and on no good byte."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tests.upkeep.check.looking import deep_findings, flip_cold, flip_local, scrubber
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, ByteRange, ChunkState, Tier
from tierfs.engine.metadata import chains, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.tables import SEGMENTS
from tierfs.engine.segments import stat
from tierfs.upkeep.check.findings import Kind
from tierfs.upkeep.check.scrub.verify import Verified, Verifier

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
        editor = Editor(txn, segment).remove(Tier.COLD, [first], due_ms=0).fill_gaps([first.range], journaled=False)
        txn.put(SEGMENTS, tables.u64(segment.id), editor.segment)
    found = verify(store)
    assert (found.lost, found.bad) == ([ByteRange(0, 3 * MIB)], [])
    assert not found.ok


FLIPPED_BYTES = 5 * MIB + 12_345


@pytest.mark.parametrize("seed", range(6))
def test_every_flipped_bit_is_named_by_tier_and_block(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    with open_test_store(tmp_path / "store", policy={**POLICY, "chunk_bytes": str(MIB + 1000)}) as store:
        store.append("s", chosen.randbytes(FLIPPED_BYTES), seal=True)
        store.offload()
        assert deep_findings(store) == []
        flipped = {(tier, chosen.randrange(FLIPPED_BYTES)) for tier in (Tier.LOCAL, Tier.COLD) for _ in range(3)}
        for tier, offset in flipped:
            (flip_local if tier is Tier.LOCAL else flip_cold)(store, "s", offset)
        found = deep_findings(store)
        assert {one.kind for one in found} == {Kind.BYTES}
        for tier in (Tier.LOCAL, Tier.COLD):
            ranges = [one.range for one in found if one.place is not None and one.place.tier is tier]
            wanted = [offset for where, offset in flipped if where is tier]
            assert all(any(holds(span, offset) for span in ranges) for offset in wanted)
            assert sum(span.length_bytes for span in ranges if span) <= len(wanted) * CRC_BLOCK_BYTES


def holds(span: ByteRange | None, offset: int) -> bool:
    return span is not None and span.start <= offset < span.end
