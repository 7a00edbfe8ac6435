"""What a recovery from objects believes of names, manifests and sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.batches.batch_writes import Driver
from tests.safety.refused import refused
from tests.stores import TestStore, open_test_store
from tierfs.app.batches.recovery import batch_objects
from tierfs.app.found_objects import _MAX_SEGMENT_ID, FoundObject, checked_path
from tierfs.app.recovery.cover import choose
from tierfs.app.recovery.described_object import parsed
from tierfs.base.words.errors import DataLoss
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal.objects import read_small
from tierfs.engine.metadata import frames
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH

FOUND = FoundObject("o", "e", 0, "0" * 32, 1, "a/s", 0, 4, 1, "a" * 32, None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened


MANIFESTS: dict[str, tuple[Callable[[pb.BatchManifest], object], int]] = {
    "whole": (lambda manifest: None, 2),
    "twice": (lambda manifest: manifest.segments[1].objects[0].CopyFrom(manifest.segments[0].objects[0]), 0),
    "longer": (lambda manifest: setattr(manifest.segments[0].objects[0], "length", 4), 1),
    "incomplete": (lambda manifest: setattr(manifest, "parts", 2), 0),
    "elsewhere": (lambda manifest: setattr(manifest.segments[0], "name", "../x"), 0),
    "empty": (lambda manifest: setattr(manifest.segments[0].objects[0], "length", 0), 0),
}


@pytest.mark.parametrize(("change", "linked"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_is_believed_as_far_as_it_agrees_with_what_is_there(
    store: TestStore, tmp_path: Path, change: Callable[[pb.BatchManifest], object], linked: int
) -> None:
    Driver(store).write({"out/a": b"abc", "out/b": b"de"})
    store.settle()
    (name,) = [one.name for one in store.cold.list("uploads/") if "manifest-" in one.name]
    manifest = frames.parse_batch_manifest(read_small(store.cold, name), name)
    change(manifest)
    store.cold.put(name, BufferSource(frames.frame(manifest)), create_only=False)
    found = list(batch_objects(store.cold, store.cold.list("uploads/"), tmp_path / "found", []))
    assert len([one for one in found if isinstance(one, FoundObject)]) == linked


@pytest.mark.parametrize(("field", "most"), [("segment_id", _MAX_SEGMENT_ID), ("epoch", MAX_EPOCH)])
def test_numbers_of_objects_leave_others_to_be_given(field: str, most: int) -> None:
    for number in (0, 1, most, most + 1):
        with refused(number in (0, most + 1), DataLoss):
            assert checked_path(replace(FOUND, **cast(Any, {field: number}))) == "a/s"


@pytest.mark.parametrize("path", ["", "/", "a//s", "../s", "a/../s", ".tierfs-removed-9", ".tierfs-removed-9/s", "a/"])
def test_an_object_of_an_impossible_name_makes_no_segment(path: str) -> None:
    with pytest.raises(DataLoss):
        checked_path(replace(FOUND, path=path))


spans = st.tuples(st.integers(0, 12), st.integers(1, 4), st.integers(1, 3))


@given(st.lists(spans, max_size=8))
def test_chosen_objects_share_no_byte_and_the_newest_owner_wins(rows: list[tuple[int, int, int]]) -> None:
    found = [
        replace(FOUND, name=str(number), start=start, end=start + length, epoch=epoch)
        for number, (start, length, epoch) in enumerate(rows)
    ]
    cover = choose(found)
    assert all(one.end <= other.start for one, other in pairwise(cover.chosen))
    assert {*cover.chosen, *cover.left} == set(found)
    for omitted in cover.left:  # because of one that is not older
        met = [one for one in cover.chosen if one.start < omitted.end and omitted.start < one.end]
        assert met
        assert max(one.epoch for one in met) >= omitted.epoch


@pytest.mark.parametrize("shorter", [-1, 0, 1])
@pytest.mark.parametrize("other_name", [False, True])
@pytest.mark.parametrize("has_metadata", [False, True])
def test_an_object_is_what_name_metadata_and_size_say_together(
    store: TestStore, shorter: int, other_name: bool, has_metadata: bool
) -> None:
    store.append("s", b"abcd", seal=True)
    store.offload("s")
    stored = store.cold.stat(store.layout("s").cold[0].object.name)
    name = stored.name.replace("segments/s/", "segments/t/") if other_name else stored.name
    name = name[: name.rindex("-c")] if has_metadata else name  # older names have no CRC32C
    item = replace(stored, name=name, length_bytes=4 - shorter, metadata=stored.metadata if has_metadata else {})
    with refused(shorter or (other_name and has_metadata), DataLoss):
        assert (parsed(item).path, parsed(item).length_bytes) == ("t" if other_name else "s", 4)
