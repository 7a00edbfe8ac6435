"""Clones: the first bytes of a segment under another name, in the same files and objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.recovery.recovering import recovered
from tests.doubles.scripted_storage import ScriptedStorage
from tests.engine.journal.replaying import check_every_step, check_store
from tests.stores import TestStore, assert_layout, create_ledger
from tests.upkeep.check.looking import cold_findings, findings
from tierfs.base.words.errors import AlreadyExists, InvalidRequest, IsDirectory, NotDirectory, NotFound
from tierfs.base.words.types import ROOT_DIRECTORY, ByteRange, ChunkState, Tier
from tierfs.engine.metadata import chain_edits, directories, policies
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS
from tierfs.engine.segments.clone import Clone, clone
from tierfs.upkeep.check.findings import Kind, Severity

DATA = b"abcdefghijkl"


@pytest.fixture(autouse=True)
def clean(store: TestStore) -> Iterator[None]:
    """After each test the store has nothing to repair."""
    yield
    with store.metadata.read() as txn:
        check_store(txn)
    assert [
        each for each in findings(store) if each.severity is not Severity.NOTE and each.kind is not Kind.SUSPECT
    ] == []


def cloned(store: TestStore, source: str, target: str, end: int | None = None) -> Clone:
    return clone(store.metadata, source, target, end=end)[0]


def names_of(store: TestStore, name: str) -> set[str]:
    layout = store.layout(name)
    return {placed.object.name for placed in (*layout.local, *layout.cold)}


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (0, 3), (0, 4), (0, 12), (1, 0), (1, 1), (1, 3), (4, 4), (4, 9), (6, 7), (6, 8), (6, 11)]
)
@pytest.mark.parametrize("state", ["local", "cold", "both"])
def test_a_clone_has_the_first_bytes_at_their_offsets_in_each_tier(
    store: TestStore, tmp_path: Path, state: str, start: int, end: int
) -> None:
    store.append("s", DATA, seal=True)
    if state != "local":
        store.offload()
    if state == "cold":
        store.evict()
    store.engine.truncate("s", start, cold_due_ms=0)
    if end < start:
        with pytest.raises(InvalidRequest, match=f"cannot clone s up to {end}: it has bytes {start} to 12"):
            cloned(store, "s", "t", end)
        return
    done = cloned(store, "s", "t", end)
    made = store.segment("t")
    assert (done.start, done.end) == (start, end)
    assert (made.range, made.sealed) == (ByteRange(start, end), False)
    for tier, is_there in ((Tier.LOCAL, state != "cold"), (Tier.COLD, state != "local")):
        held = [placed.range for placed in store.layout("t").chunks(tier)]
        assert [each.start for each in held[:1]] == ([start] if is_there and end > start else [])
        assert store.read("t", tier)[start:] == (DATA[start:end] if is_there else bytes(end - start))
    assert names_of(store, "t") <= names_of(store, "s")
    store.append("t", b"xyz")
    assert store.read("t")[start:] == DATA[start:end] + b"xyz"
    assert store.read("s")[start:] == DATA[start:]
    store.offload()
    check_every_step(store, tmp_path / "copy")


def test_the_active_chunk_ends_where_a_clone_needs_its_bytes_and_its_writer_goes_on(store: TestStore) -> None:
    writer = store.engine.open_writer("s")
    writer.append(b"abcdef")  # the second chunk has two bytes, and room for two
    cloned(store, "s", "before", 4)
    assert store.segment("s").active
    _, ended = clone(store.metadata, "s", "t", end=5)
    assert ended == store.layout("s").local[1].object.name
    assert not store.segment("s").active
    assert writer.append(b"g") == ByteRange(6, 7)
    assert_layout(store, "s", local=[4, 2, 1], cold=[])
    assert_layout(store, "t", local=[4, 1], cold=[])
    assert (store.read("s"), store.read("t"), store.read("before")) == (b"abcdefg", b"abcde", b"abcd")


@pytest.mark.parametrize("goes", ["s", "t"])
def test_bytes_stay_until_the_last_segment_that_has_them_goes(store: TestStore, goes: str) -> None:
    store.append("s", DATA, seal=True)
    store.offload()
    cloned(store, "s", "t", 6)
    other = "t" if goes == "s" else "s"
    kept = store.read(other)
    store.engine.delete(goes, recursive=False, cold_due_ms=store.clock.now_ms())
    store.clock.advance(24 * 3600)
    store.collect()
    assert (store.read(other, Tier.LOCAL), store.read(other, Tier.COLD)) == (kept, kept)
    assert cold_findings(store) == []
    store.engine.delete(other, recursive=False, cold_due_ms=store.clock.now_ms())
    store.clock.advance(24 * 3600)
    store.collect()
    assert not list(store.cold.list("segments/"))
    assert not list(store.files.root.glob("??/*"))


def test_a_recovery_has_the_clone_even_when_its_source_is_gone(store: TestStore, tmp_path: Path) -> None:
    store.append("s", DATA, seal=True)
    store.offload()
    cloned(store, "s", "t", 6)
    store.engine.delete("s", recursive=False, cold_due_ms=store.clock.now_ms())
    store.settle()
    with recovered(tmp_path / "lost", store.cold) as found:
        assert found.store.read("t") == DATA[:6]
        assert cold_findings(found.store) == []


def test_no_local_byte_of_a_clone_goes_before_the_journal_names_it(store: TestStore, storage: ScriptedStorage) -> None:
    """The object is published long since, with its source; the bucket alone would not know the clone."""
    store.append("s", b"abcd", seal=True)
    store.offload()
    cloned(store, "s", "t")
    (held,) = (placed.object for placed in store.layout("t").cold)
    with store.metadata.read() as txn:
        assert held.linked_sequence > txn.store.journal.published_sequence
    store.settle()
    store.evict()
    assert_layout(store, "t", local=[], cold=[4])


def test_small_objects_in_packs_are_shared(store: TestStore) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": "1024", "object_bytes": "1024"})
    for name in ("a", "b", "c"):
        store.append(name, name.encode() * 20, seal=True)
    store.offload()
    (pack,) = store.layout("b").cold
    assert pack.object.packed == 3
    cloned(store, "b", "t", 7)
    store.evict()
    store.engine.delete("b", recursive=False, cold_due_ms=store.clock.now_ms())
    store.clock.advance(24 * 3600)
    store.collect()
    assert store.read("t") == b"b" * 7
    assert cold_findings(store) == []


def test_lost_and_suspect_bytes_are_so_in_the_clone_too(store: TestStore) -> None:
    store.append("s", DATA, seal=True)
    store.offload()
    store.evict()
    with store.metadata.write() as txn:
        chain_edits.Editor(txn, directories.segment_by_name(txn, "s")).lose(ByteRange(2, 5)).put(journaled=True)
    suspect = store.layout("s").cold[-1].chunk
    chain_edits.set_state(store.metadata, store.segment("s").id, Tier.COLD, suspect, ChunkState.SUSPECT)
    cloned(store, "s", "t", 9)
    states = [(each.range, each.chunk.state) for each in store.layout("t").cold]
    assert states == [
        (ByteRange(0, 2), ChunkState.GOOD),
        (ByteRange(2, 5), ChunkState.LOST),
        (ByteRange(5, 8), ChunkState.GOOD),
        (ByteRange(8, 9), ChunkState.SUSPECT),
    ]
    assert store.segment("t").cold.bytes == 6


def test_a_clone_into_a_directory_keeps_the_name(store: TestStore) -> None:
    store.append("a/s", b"x")
    store.engine.make_directory("b")
    assert cloned(store, "/a/s", "b") == Clone("a/s", "b/s", 0, 1, 1)
    assert cloned(store, "a/s", "new/deep/t").target == "new/deep/t"


@pytest.mark.parametrize(
    ("source", "target", "end", "error", "match"),
    [
        ("none", "t", None, NotFound, "none"),
        ("d", "t", None, IsDirectory, "d"),
        ("ledger", "t", None, InvalidRequest, "ledger is a ledger, and ledgers are not cloned"),
        ("d/s", "t", 5, InvalidRequest, "cannot clone d/s up to 5: it has bytes 0 to 4"),
        ("d/s", "d/s", None, AlreadyExists, "d/s exists"),
        ("d/s", "d", None, AlreadyExists, "d/s exists"),
        ("d/s", "d/s/t", None, NotDirectory, "d/s"),
        ("d/s", "a/../b", None, InvalidRequest, "not allowed|component|invalid|\\.\\."),
        ("d/s", ".tierfs-trash-1", None, InvalidRequest, "tierfs-trash"),
    ],
)
def test_what_is_refused_changes_nothing(
    store: TestStore, source: str, target: str, end: int | None, error: type[Exception], match: str
) -> None:
    store.append("d/s", b"abcd")
    create_ledger(store.metadata, "ledger")
    with store.metadata.read() as txn:
        before = {name: list(txn.scan_raw(name)) for name in (CHUNKS.name, OBJECTS.name, b"dirents", b"segments")}
    with pytest.raises(error, match=match):
        cloned(store, source, target, end)
    with store.metadata.read() as txn:
        assert {name: list(txn.scan_raw(name)) for name in before} == before
