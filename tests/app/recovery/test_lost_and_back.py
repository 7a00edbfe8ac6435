"""Bytes that are lost and come back: what reads the journal has the owner's chunks, from changes or a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.journal.replaying import check_store, empty_copy, entries_of, view
from tests.stores import TestStore, assert_layout, open_test_store
from tierfs.base.words.types import ByteRange, ChunkState, Tier
from tierfs.engine.journal import replay
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import chain_edits, chains, directories
from tierfs.engine.metadata import changes as journal
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

CONTENT = b"abcdefghijklmnopqrstuvwx"
Edit = Callable[[WriteTransaction, Editor], Editor]


@contextmanager
def cold_store(path: Path) -> Iterator[TestStore]:
    """One segment of two objects of 12 bytes each, in the cold tier alone."""
    with open_test_store(path, policy={"chunk_bytes": "12", "object_bytes": "12"}) as store:
        store.append("s", CONTENT, seal=True)
        store.offload()
        store.evict(force=True)
        assert_layout(store, "s", local=[], cold=[12, 12])
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with cold_store(tmp_path / "store") as opened:
        yield opened


def edit(store: TestStore, change: Edit) -> None:
    with store.metadata.write() as txn:
        change(txn, Editor(txn, directories.segment_by_name(txn, "s"))).put(journaled=True)


def lose(store: TestStore, start: int, end: int) -> None:
    edit(store, lambda txn, editor: editor.lose(ByteRange(start, end)))


def cold_chunks(store: TestStore) -> list[ChunkRecord]:
    with store.metadata.read() as txn:
        return list(chains.chunks(txn, directories.segment_by_name(txn, "s").id, Tier.COLD))


def set_state(store: TestStore, start: int, state: ChunkState) -> None:
    """Mark the chunk that begins at an offset, as a reader or a check does."""
    (chunk,) = [one for one in cold_chunks(store) if one.start_offset == start]
    chain_edits.set_state(store.metadata, store.segment("s").id, Tier.COLD, chunk, state)


def bucket(txn: ReadTransaction) -> dict[str, object]:
    """The bucket's view; whether a chunk is suspect each host knows on its own."""
    found = view(txn)
    for name, row in found.items():
        if isinstance(row, tuple):
            *head, cold = row
            states = [(*one[:-1], ChunkState(one[-1]) is ChunkState.LOST) for one in cold]
            found[name] = (*head, states)
    return found


GOOD, SUSPECT, LOST = ChunkState.GOOD, ChunkState.SUSPECT, ChunkState.LOST


@pytest.mark.parametrize(
    ("steps", "chunks"),
    [
        ([(4, 8)], [(0, 4, GOOD), (4, 4, LOST), (8, 4, GOOD)]),
        ([(4, 8), (4, GOOD)], [(0, 12, GOOD)]),
        ([(4, 8), (4, GOOD), (4, 8), (0, 4)], [(0, 8, LOST), (8, 4, GOOD)]),
        ([(4, 8), (0, SUSPECT), (4, GOOD)], [(0, 12, SUSPECT)]),
        ([(0, 4), (4, SUSPECT), (0, GOOD)], [(0, 12, SUSPECT)]),
    ],
    ids=["lost", "back", "lost again, and its neighbour", "beside a suspect chunk", "before a suspect chunk"],
)
def test_a_block_that_came_back_is_one_chunk_with_its_neighbours(
    store: TestStore, steps: list[tuple[int, int | ChunkState]], chunks: list[tuple[int, int, ChunkState]]
) -> None:
    """And a proof of the block says nothing of what it was joined to."""
    seen = cold_chunks(store)[0]
    for start, then in steps:
        seen = cold_chunks(store)[0]
        if isinstance(then, ChunkState):
            set_state(store, start, then)
        else:
            lose(store, start, then)
    rows = [(one.start_offset, one.length, ChunkState.LOST if one.lost else one.state) for one in cold_chunks(store)]
    assert rows == [*chunks, (12, 12, GOOD)]
    segment_id = store.segment("s").id
    assert seen != cold_chunks(store)[0]
    assert not chain_edits.set_state(store.metadata, segment_id, Tier.COLD, seen, GOOD)
    assert cold_chunks(store)[0].state is not GOOD or chunks[0][2] is GOOD


class Readers:
    """Copies that follow a store's journal: from its first entry, or from a checkpoint at any time."""

    def __init__(self, store: TestStore, stack: ExitStack, path: Path) -> None:
        self._store, self._stack, self._path = store, stack, path
        self._copies: list[MetadataStore] = []
        self._publisher = Publisher(store.metadata, store.cold)
        self._add()

    def _add(self) -> MetadataStore:
        path = self._path / f"copy-{len(self._copies)}"
        copy = self._stack.enter_context(empty_copy(path, self._store.metadata.store_id))
        self._copies.append(copy)
        return copy

    def start_from_checkpoint(self) -> None:
        self._publisher.publish()
        copy = self._add()
        with self._store.metadata.read() as view, copy.write() as txn:
            changes = list(journal.state_changes(view))
            replay.apply_state(txn, changes, "part")
            state = view.store.journal
            manifest = pb.CheckpointManifest(
                slot=state.next_slot - 1,
                last_sequence=state.published_sequence,
                store_epoch=view.store.store_epoch,
                next_id=view.store.next_id,
            )
            replay.finish_checkpoint(txn, manifest)

    def check(self) -> None:
        """Let every copy come up, and compare it with the owner."""
        self._publisher.publish()
        entries = entries_of(self._store.cold)
        for copy in self._copies:
            with copy.write() as txn:
                for entry in entries[txn.store.journal.next_slot - 1 :]:
                    replay.apply_entry(txn, entry)
            with copy.read() as txn, self._store.metadata.read() as owner:
                check_store(txn)
                assert bucket(txn) == bucket(owner)


PLACES = st.integers(0, 5)
STEPS = st.tuples(
    st.sampled_from(["lose", "lose", "good", "good", "suspect", "take out", "truncate", "checkpoint"]), PLACES
)


def take(store: TestStore, readers: Readers, what: str, place: int) -> None:
    """Do a step at the block or the chunk with a number."""
    start = max(4 * place, store.segment("s").start_offset)
    span = ByteRange(start, max(start, 4 * place + 4))
    of_objects = [chunk for chunk in cold_chunks(store) if chunk.object_id]
    others = [one for one in of_objects if one.state is not ChunkState.GOOD] if what == "good" else of_objects
    if what == "lose" and span:
        lose(store, span.start, span.end)
    elif what == "take out" and span:
        edit(store, lambda txn, editor: editor.take_out(span, due_ms=txn.now_ms))
    elif what in ("good", "suspect") and others:
        set_state(store, others[place % len(others)].start_offset, ChunkState[what.upper()])
    elif what == "truncate":
        store.engine.truncate("s", 2 * place, cold_due_ms=store.clock.now_ms())
    elif what == "checkpoint":
        readers.start_from_checkpoint()


@settings(max_examples=20, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_every_reader_has_the_owners_chunks_and_references(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as directory, cold_store(Path(directory) / "store") as store, ExitStack() as stack:
        readers = Readers(store, stack, Path(directory))
        for what, place in [*steps, ("checkpoint", 0), ("checkpoint", 1)]:
            take(store, readers, what, place)
            readers.check()
        with store.metadata.read() as txn:
            check_store(txn)
