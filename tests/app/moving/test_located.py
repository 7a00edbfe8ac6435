"""The storage of a location follows the store's records, and work that belongs to one place ends with it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tierfs as python
from tests.app.moving.conftest import NAMES, Change, copy, text_of
from tests.commands import tierfs
from tests.mount.waiting import eventually
from tierfs.app.store import Store, open_store
from tierfs.base.words.errors import Conflict, NotFound, WrongColdTier
from tierfs.base.words.types import ByteRange, LocationId, Tier
from tierfs.engine.chunkstore import located
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.journal.publish import OtherOwner, fenced_by
from tierfs.engine.metadata import chains, directories
from tierfs.engine.metadata.journal_state import Fencer
from tierfs.engine.metadata.layout import PlacedChunk
from tierfs.reading.verified import VerifiedReader, own_sum
from tierfs.upkeep.check.places import Places
from tierfs.upkeep.check.scrub.pieces import pieces
from tierfs.upkeep.check.scrub.scrub import Scrubber

COLD = LocationId(1)


@pytest.fixture
def opened(store: Path) -> Iterator[Store]:
    """Open a store that has just looked where its cold tier is, and looks again only for a reason."""
    with open_store(store) as opened:
        assert list(opened.storage_of(COLD).list("journal/"))
        opened.storage_of(COLD)._look_s = math.inf
        yield opened


def placed_in(opened: Store, name: str) -> PlacedChunk:
    with opened.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
        chunk = chains.chunk_at(txn, segment.id, Tier.COLD, segment.cold.first_chunk)
        assert chunk is not None
        return PlacedChunk(chunk, chains.object_of(txn, chunk))


def test_a_read_that_compares_is_of_the_present_place(opened: Store, change: Change) -> None:
    reader = VerifiedReader(opened.metadata, opened.storage_of)
    placed = [placed_in(opened, name) for name in NAMES]
    change(opened.path)
    first = ByteRange(0, 1000)
    grid = reader.grid(placed[0].object, first)
    assert bytes(reader.read(placed[0].object, first, grid, own_sum(placed[0]))) == text_of("first")[:1000]


def test_a_reader_gets_the_bytes_of_the_present_place(store: Path, change: Change) -> None:
    with python.open_store(str(store)) as opened:
        assert opened.open("first").read(1000) == text_of("first")[:1000]
        opened._connection.store.storage_of(COLD)._look_s = math.inf
        change(store)
        assert opened.open("second").read() == text_of("second")


def test_a_check_is_of_the_present_place(opened: Store, change: Change) -> None:
    change(opened.path)
    with opened.metadata.read() as txn:
        segment = directories.segment_by_name(txn, "first")
    wanted = list(pieces(opened.metadata, segment.id, segment.range))
    assert not any(checked.bad for checked in Scrubber(opened.metadata, opened.files, opened.storage_of).run(wanted))


def test_a_proof_is_of_the_present_place(opened: Store, change: Change) -> None:
    placed = placed_in(opened, "first")
    change(opened.path)
    assert VerifiedReader(opened.metadata, opened.storage_of).proves(placed)


def test_a_place_that_was_away_is_judged_again_after_a_move(opened: Store, change: Change, tmp_path: Path) -> None:
    places = Places(opened.metadata, opened.storage_of)
    (tmp_path / "cold" / "journal").rename(tmp_path / "journal")
    assert places.away(COLD) is not None
    (tmp_path / "journal").rename(tmp_path / "cold" / "journal")
    change(opened.path)
    assert places.away(COLD) is None


def test_a_process_follows_although_the_place_before_answers(opened: Store, tmp_path: Path) -> None:
    """What is put there afterwards must not be seen by it for ever."""
    copy(opened.path, tmp_path / "nas")
    name = placed_in(opened, "first").object.name
    storage = opened.storage_of(COLD)
    storage._look_s = located.LOOK_S

    def is_read_there() -> bool:
        storage.read_into(name, 0, memoryview(bytearray(10)))  # which succeeds at the place before, too
        return "nas" in repr(storage)

    assert eventually(is_read_there, 5 * located.LOOK_S)


def test_threads_follow_together(store: Path, change: Change) -> None:
    """Each of their calls succeeds, and they share connections."""
    with open_store(store) as opened, ThreadPoolExecutor(8) as pool:
        wanted = [placed_in(opened, name).object for name in NAMES]
        ended, made = threading.Event(), set[int]()

        def read(number: int) -> int:
            count, record, is_last = 0, wanted[number % len(wanted)], False
            while not is_last:
                is_last = ended.is_set()  # a thread that begins late reads once
                opened.storage_of(COLD).stat(record.name)  # of a file that the test itself may be writing over
                made.add(id(opened.storage_of(COLD).connection()))
                count += 1
            return count

        reading = [pool.submit(read, number) for number in range(8)]
        change(store)
        opened.storage_of(COLD).present()
        opened.storage_of(COLD).stat(wanted[0].name)
        ended.set()
        assert min(done.result() for done in reading) > 0
        assert len(made) <= 4  # one for each place, and again for a thread that was just about to connect


def test_a_listing_goes_on_in_the_present_place(opened: Store, change: Change) -> None:
    listed = opened.storage_of(COLD).list("segments/")
    names = [next(listed).name]
    change(opened.path)
    tierfs("-q", "append", "zlater", store=opened.path, stdin=b"x")
    tierfs("-q", "offload", store=opened.path)
    names += [stored.name for stored in listed]
    assert names == sorted(set(names))
    assert {placed_in(opened, name).object.name for name in (*NAMES, "zlater")} <= set(names)


def test_work_of_one_place_ends_with_it(opened: Store, change: Change) -> None:
    """What is missing where the store was is not lost; nothing more is written there."""
    location = opened.cold_location
    assert location is not None
    pinned, unused = opened.locations.at(location), opened.locations.at(location)
    name = placed_in(opened, "first").object.name
    assert pinned.stat(name).name == name
    change(opened.path)
    for call in (
        lambda: pinned.stat("segments/x"),
        lambda: list(pinned.list("")),
        lambda: unused.put("segments/x", BufferSource(b"x")),
        pinned.present,
    ):
        with pytest.raises(Conflict, match="the address of the cold tier has changed"):
            call()


def test_the_owner_of_a_place_that_was_left_fences_nobody(opened: Store, tmp_path: Path) -> None:
    location = opened.cold_location
    assert location is not None
    storage = opened.locations.at(location)
    storage.connection()
    copy(opened.path, tmp_path / "nas")
    with pytest.raises(Conflict, match="the address of the cold tier has changed"):
        fenced_by(opened.metadata, storage, OtherOwner("journal/x", 9, "a", Fencer()))
    with opened.metadata.read() as txn:
        assert txn.store.journal.fenced_by_epoch == 0


def test_a_directory_that_was_left_can_be_unmounted(opened: Store, tmp_path: Path) -> None:
    """Once the present place is connected no descriptor of the one before is open."""
    copy(opened.path, tmp_path / "nas")
    with pytest.raises(NotFound):
        opened.storage_of(COLD).stat("segments/x")
    held = {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    assert str(tmp_path / "cold") not in held
    assert str(tmp_path / "nas") in held


def test_a_first_connection_that_fails_is_tried_again(store: Path, tmp_path: Path) -> None:
    (tmp_path / "cold").rename(tmp_path / "away")
    with open_store(store) as opened:
        storage = opened.storage_of(COLD)
        with pytest.raises(WrongColdTier):
            storage.stat("x")
        (tmp_path / "away").rename(tmp_path / "cold")
        assert list(storage.list("journal/"))
