"""Random bit flips in files and objects: --deep names every one of them, and no good byte."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fsck.looking import deep_findings, flip_cold, flip_local
from tests.stores import open_test_store
from tierfs.fsck.findings import Kind
from tierfs.types import CRC_BLOCK_BYTES, MIB, ByteRange, Tier

LENGTH = 5 * MIB + 12_345
POLICY = {"chunk_bytes": str(MIB + 1000), "object_bytes": str(4 * MIB)}


@pytest.mark.parametrize("seed", range(6))
def test_every_flipped_bit_is_named_by_tier_and_block(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    with open_test_store(tmp_path / "store", policy=POLICY) as store:
        store.append("s", chosen.randbytes(LENGTH), seal=True)
        store.offload()
        assert deep_findings(store) == []
        flipped = {(tier, chosen.randrange(LENGTH)) for tier in (Tier.LOCAL, Tier.COLD) for _ in range(3)}
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
