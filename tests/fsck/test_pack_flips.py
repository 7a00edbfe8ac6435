"""A bad bit in a pack costs the chunk that it lies in, and none of those that share its block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fsck.looking import deep_findings, flip_cold, holder_at, scrubber
from tests.reading.readers import reader_of
from tests.stores import TestStore, open_test_store
from tierfs.errors import DataLoss
from tierfs.fsck.scrub.verify import Verifier
from tierfs.parallel import Meter
from tierfs.types import MIB, ChunkState, Tier

NAMES = ("a", "b", "c", "d", "e")
DATA = {name: os.urandom(5000 + number) for number, name in enumerate(NAMES)}
BAD = "c"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    """Five segments in one block of one pack, nowhere else; one of them has a bad bit."""
    with open_test_store(tmp_path / "store", policy={"read_priority": "local-first"}) as opened:
        for name, data in DATA.items():
            opened.append(name, data, seal=True)
        opened.offload()
        opened.evict()
        assert len(list(opened.cold.list("packs/"))) == 1
        flip_cold(opened, BAD, 100)
        yield opened


def suspects(store: TestStore) -> set[str]:
    return {
        name
        for name in NAMES
        for placed in store.layout(name).chunks(Tier.COLD)
        if placed.chunk.state is ChunkState.SUSPECT
    }


def test_verify_names_the_damaged_one_alone(store: TestStore) -> None:
    verifier = Verifier(store.metadata, scrubber(store), Meter(), marks=True)
    segments = [(name, store.segment(name).id, store.segment(name).range) for name in NAMES]
    assert {found.name for found in verifier.run(segments) if not found.ok} == {BAD}
    assert suspects(store) == {BAD}


async def test_the_others_are_read_and_stay_unmarked(store: TestStore, expected_warnings: list[str]) -> None:
    expected_warnings.append("does not match its checksum")
    async with reader_of(store) as reader:
        for name, data in DATA.items():
            handle = reader.open(store.segment(name).id)
            if name == BAD:
                with pytest.raises(DataLoss):
                    await handle.read(0, 10_000)
            else:
                assert bytes(await handle.read(0, 10_000)) == data
                assert bytes(await handle.read(1000, 500)) == data[1000:1500]
            handle.close()
    assert suspects(store) == {BAD}


def test_a_chunk_in_several_pieces_answers_for_none_of_its_neighbours(tmp_path: Path) -> None:
    policy = {"chunk_bytes": str(8 * MIB), "object_bytes": str(64 * MIB)}
    with open_test_store(tmp_path / "large", policy=policy) as store:
        data = os.urandom(3_700_011)
        names = [f"s{number}" for number in range(10)]  # one of them crosses the 32 MiB of a run of checksums
        for name in names:
            store.append(name, data, seal=True)
        store.offload()
        store.evict()
        places = {name: holder_at(store, name, Tier.COLD, 0) for name in names}
        crossing = next(name for name, (_, at) in places.items() if at < 32 * MIB < at + len(data))
        before = max((at, name) for name, (_, at) in places.items() if at < places[crossing][1])[1]
        flip_cold(store, before, len(data) - 1)
        assert {finding.subject for finding in deep_findings(store)} == {before}
