"""The objects to make of a segment whose cold chunks have gaps: found from where local bytes begin, and all of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.costs import calls
from tests.stores import TestStore, open_test_store
from tests.tiering.cold_pieces import cut_head
from tierfs.metadata import chains, tables
from tierfs.metadata.records import SegmentRecord
from tierfs.metadata.tables import SEGMENTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.tiering.candidates import OffloadAction, objects_to_make, offload_actions, sealed_local_chunks
from tierfs.types import ByteRange, Tier

STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "offload", "evict", "lose", "cut"]), st.integers(1, 11)), max_size=8
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_starting_at_the_local_bytes_misses_nothing(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory, open_test_store(Path(directory) / "s") as store:
        store.append("s", bytes(30))
        store.offload("s")
        for step, number in steps:
            take(store, step, number)
            with store.metadata.read() as txn:
                segment = store.segment("s")
                assert list(objects_to_make(txn, segment, 8)) == from_the_beginning(txn, segment, 8)


def take(store: TestStore, step: str, number: int) -> None:
    if step == "append":
        store.append("s", bytes(number))
    elif step == "offload":
        store.offload("s")
    elif step == "evict":
        store.evict("s", force=True)
    elif step == "lose":
        lose_cold_chunk(store, number)
    else:
        segment = store.segment("s")
        cut_head(store, "s", min(segment.start_offset + number % 4, segment.length))


def from_the_beginning(txn: ReadTransaction, segment: SegmentRecord, object_bytes: int) -> list[OffloadAction]:
    """The same by both chains as a whole."""
    local = sealed_local_chunks(txn, segment, segment.start_offset)
    cold = chains.chunks(txn, segment.id, Tier.COLD)
    return list(offload_actions(segment.id, local, cold, object_bytes, start_offset=segment.start_offset))


def lose_cold_chunk(store: TestStore, number: int) -> None:
    """Take one cold chunk out of the chain."""
    with store.metadata.write() as txn:
        segment = store.segment("s")
        cold = list(chains.chunks(txn, segment.id, Tier.COLD))
        if cold:
            gone = cold[number % len(cold)]
            segment = chains.remove(txn, segment, Tier.COLD, [gone], due_ms=0, after_sequence=0)
            txn.put(SEGMENTS, tables.u64(segment.id), segment)


def test_a_gap_does_not_make_a_look_linear_in_what_is_cold_alone(tmp_path: Path) -> None:
    costs = []
    for chunks in (20, 80):
        with open_test_store(tmp_path / str(chunks), policy={"chunk_bytes": "4", "object_bytes": "4"}) as store:
            store.append("s", bytes(4 * chunks))
            store.offload("s")
            store.evict("s", force=True)
            lose_cold_chunk(store, 1)
            store.append("s", b"abcd", seal=True)
            with store.metadata.read() as txn:
                segment = store.segment("s")
                (action,) = objects_to_make(txn, segment, 4)
                costs.append(calls(lambda txn=txn, segment=segment: list(objects_to_make(txn, segment, 4))))
        assert action.range == ByteRange(4 * chunks, 4 * chunks + 4)
    assert costs[1] < 1.1 * costs[0]
