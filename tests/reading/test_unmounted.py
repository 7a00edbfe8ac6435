"""A place whose filesystem is not mounted: reads wait for it, and nothing counts as lost or damaged."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

from tests.reading.readers import reached, states
from tests.reading.test_copy_marks import DATA, GOOD, SUSPECT
from tests.stores import TestStore, open_test_store
from tierfs.chunkstore.directory import tree as directory_tree
from tierfs.chunkstore.directory.storage import DirectoryStorage
from tierfs.chunkstore.directory.tree import RootDirectory
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.chunkstore.read_only import ReadOnlyDirectory
from tierfs.chunkstore.validate import MARK_NAME
from tierfs.config import ReadSettings
from tierfs.errors import DataLoss, NotFound, TierfsError, Unavailable
from tierfs.metrics import NullMetrics
from tierfs.reading.handle import ReadHandle
from tierfs.reading.reader import Reader
from tierfs.types import MIB, ChunkState, ReadPriority, Tier

DEADLINE_S = 2.0
LATE_S = 20.0


class Place:
    """A directory whose content goes and comes back, as that of a mount point does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._away = path.with_name(f"{path.name}-away")

    def unmount(self) -> None:
        self.path.rename(self._away)
        self.path.mkdir()

    def mount(self) -> None:
        self.path.rmdir()
        self._away.rename(self.path)


@pytest.fixture
def cold(tmp_path: Path) -> Place:
    place = Place(tmp_path / "cold")
    place.path.mkdir()
    return place


@pytest.fixture
def store(tmp_path: Path, cold: Place) -> Iterator[TestStore]:
    """A store whose segment `s` is cold, in three objects of a directory."""
    policy = {"chunk_bytes": str(MIB), "object_bytes": str(MIB)}
    storage = DirectoryStorage(cold.path)
    with closing(storage), open_test_store(tmp_path / "store", policy=policy, cold=storage) as opened:
        opened.append("s", DATA, seal=True)
        opened.offload()
        yield opened


@pytest.fixture
def waits(expected_warnings: list[str]) -> None:
    expected_warnings.append("segment s waits for a tier that does not answer")


def reader_of(store: TestStore, storage: ChunkStorage, deadline_s: float = LATE_S) -> Reader:
    return Reader(store.metadata, store.files, lambda _: storage, ReadSettings(deadline_s=deadline_s), NullMetrics())


def cold_handle(store: TestStore, reader: Reader) -> ReadHandle:
    return reader.open(store.segment("s").id, priority=ReadPriority.OFFLOADED_ONLY)


@pytest.mark.parametrize("kind", [DirectoryStorage, ReadOnlyDirectory])
@pytest.mark.usefixtures("waits")
async def test_a_read_begun_before_the_mount_gets_its_bytes_after_it(
    store: TestStore, cold: Place, kind: type[DirectoryStorage] | type[ReadOnlyDirectory]
) -> None:
    cold.unmount()
    with closing(kind(cold.path)) as storage:
        async with reader_of(store, storage) as reader, trio.open_nursery() as nursery:
            handle = cold_handle(store, reader)
            found: list[bytes] = []

            async def read() -> None:
                found.append(bytes(await handle.read(MIB + 5, 100)))

            nursery.start_soon(read)
            await reached(lambda: reader.waits.now.reads == 1)
            assert "nothing seems to be mounted" in reader.waits.now.why
            cold.mount()
            await reached(lambda: found != [])
            handle.close()
    assert found == [DATA[MIB + 5 : MIB + 105]]
    assert states(store, Tier.COLD) == [GOOD] * 3


def unmarked(place: Place) -> None:
    (place.path / MARK_NAME).unlink()
    shutil.rmtree(place.path / "segments")


def emptied(place: Place) -> None:
    shutil.rmtree(place.path / "segments")


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize(
    ("change", "error", "message", "first"),
    [
        (Place.unmount, Unavailable, r"no answer within 2 s: nothing seems to be mounted at .*cold", GOOD),
        (unmarked, Unavailable, MARK_NAME, GOOD),
        (emptied, DataLoss, "does not exist|not found|No such", SUSPECT),
    ],
)
async def test_only_what_is_missing_in_a_place_of_ours_is_lost(
    store: TestStore,
    cold: Place,
    change: Callable[[Place], None],
    error: type[TierfsError],
    message: str,
    first: ChunkState,
) -> None:
    if change is Place.unmount:  # a storage that is open holds the directory that it found
        change(cold)
    with closing(DirectoryStorage(cold.path)) as storage:
        if change is not Place.unmount:
            change(cold)
        async with reader_of(store, storage, DEADLINE_S) as reader:
            handle = cold_handle(store, reader)
            with pytest.raises(error, match=message):
                await handle.read(0, 100)
            handle.close()
    assert states(store, Tier.COLD) == [first, GOOD, GOOD]


def test_adopted_files_are_found_by_a_process_that_began_before_the_mount(cold: Place) -> None:
    (cold.path / "s").write_bytes(b"theirs")
    cold.unmount()
    buffer = bytearray(len(b"theirs"))
    with closing(ReadOnlyDirectory(cold.path)) as directory:
        assert list(directory.list("")) == []
        with pytest.raises(Unavailable, match="nothing seems to be mounted"):
            directory.read_into("s", 0, memoryview(buffer))
        with pytest.raises(NotFound):  # of which fsck makes one finding for the place
            directory.stat("s")
        cold.mount()
        assert [(found.name, found.length_bytes) for found in directory.list("")] == [("s", len(buffer))]
        assert directory.stat("s").length_bytes == len(buffer)
        directory.read_into("s", 0, memoryview(buffer))
    assert buffer == b"theirs"


def test_a_mount_that_goes_away_while_it_is_looked_at_costs_no_descriptor(
    cold: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold.unmount()
    tree = RootDirectory(cold.path)
    cold.mount()
    before = len(os.listdir("/proc/self/fd"))

    def gone(_: int) -> bool:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(directory_tree, "_is_mount", gone)
    assert not tree.follow()
    assert len(os.listdir("/proc/self/fd")) == before
    tree.close()
