"""The doubles themselves: a test that relies on a fault that never comes proves nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.doubles.mutations import edits, mutations
from tests.doubles.scripted_storage import ALWAYS, ScriptedStorage, When
from tierfs.base.words.errors import Unavailable
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage
from tierfs.engine.metadata import records_pb2 as pb

DOWN = Unavailable("down")
SEGMENT = pb.SegmentRecord(version=1, id=7, name="s", length=9, local=pb.TierState(count=1, bytes=9))
LINK = pb.ColdLink(segment_id=7, chunks=[pb.ChunkRecord(start_offset=0, length=9, object_id=3)])
ENTRY = pb.JournalEntry(slot=1, changes=[pb.Change(segment=SEGMENT), pb.Change(cold_link=LINK)])


def read(storage: ChunkStorage, name: str) -> bytes:
    buffer = bytearray(5)
    storage.read_into(name, 0, memoryview(buffer))
    return bytes(buffer)


def test_a_script_fails_damages_and_holds_the_calls_it_is_about() -> None:
    storage = ScriptedStorage()
    for name in ("a", "b"):
        storage.put(name, BufferSource(b"bytes"))
    storage.fail("stat", DOWN, on=2, of="b")
    for name in ("b", "a"):
        storage.stat(name)
    with pytest.raises(Unavailable):
        storage.stat("b")
    storage.damage(-1, on=2)
    assert [read(storage, "a") for _ in range(3)] == [b"bytes", b"byter", b"bytes"]
    first, second = storage.hold_next(2, "read")
    with ThreadPoolExecutor(1) as pool:
        results = [pool.submit(read, storage, name) for name in ("a", "b")]
        first.wait_begun()
        assert not second.begun.is_set()
        first.go_on()
        second.wait_begun()
        second.go_on(DOWN)
        assert (results[0].result(), results[1].exception()) == (b"bytes", DOWN)
    storage.fail("delete", DOWN, when=When.AFTER, on=ALWAYS)
    with pytest.raises(Unavailable):
        storage.delete("a")
    assert [stored.name for stored in storage.list("")] == ["b"]


def test_a_seed_gives_the_same_mutations_and_a_smaller_count_the_first_of_them() -> None:
    data = bytes(range(200))
    assert list(mutations(data, 5, 20)) == list(mutations(data, 5, 100))[:20] != list(mutations(data, 6, 20))
    assert len({damaged for whole in (b"", b"x") for damaged in mutations(whole, 1, 200)}) > 50
    first = [edited.SerializeToString(deterministic=True) for edited in edits(ENTRY, 5, 20)]
    assert first == [edited.SerializeToString(deterministic=True) for edited in edits(ENTRY, 5, 100)][:20]


def test_edits_reach_every_depth_and_bring_messages_of_another_one() -> None:
    stray = pb.Change(policy=pb.PolicyRecord(target_id=7, settings={"chunk_bytes": "4"}))
    edited = list(edits(ENTRY, 1, 3000, also=(stray,)))
    assert "policy" in {change.WhichOneof("body") for entry in edited for change in entry.changes}
    lengths = {chunk.length for entry in edited for change in entry.changes for chunk in change.cold_link.chunks}
    assert lengths >= {0, 2**64 - 1, 8, 10}
    assert any("precious" in change.segment.name for entry in edited for change in entry.changes)
    assert ENTRY.changes[0].segment == SEGMENT, "the original stays as it is"
