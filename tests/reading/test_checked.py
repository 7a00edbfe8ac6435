"""Blocks fetched and checked: right bytes or an error, whatever a storage brings, and no more than one fetch again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores import TestStore, open_test_store
from tierfs.checksum import crc32c
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import EtagDiffers, OnReceived
from tierfs.metadata import checksums
from tierfs.metadata.records import ObjectRecord
from tierfs.metrics import NullMetrics
from tierfs.reading.etags import Etags
from tierfs.reading.fetch.grid import BlockDiffers, CheckedBlocks, Grid, fetch
from tierfs.types import CRC_BLOCK_BYTES, ByteRange, LocationId, ObjectId, Tier

BLOCK = CRC_BLOCK_BYTES
BLOCKS = 4
LENGTH = (BLOCKS - 1) * BLOCK + 1000
DATA = b"".join(bytes([number + 1]) * BLOCK for number in range(BLOCKS))[:LENGTH]
HOLDER = ObjectRecord(id=ObjectId(1), tier=Tier.COLD, location_id=LocationId(1), name="o", length=LENGTH, etag="e")
GRID = Grid(ByteRange(0, LENGTH), checksums.pack([crc32c(DATA[at : at + BLOCK]) for at in range(0, LENGTH, BLOCK)]))


class Scripted(MemoryStorage):
    """Reads that are damaged, or meet another version, as a test says."""

    def __init__(self, damages: list[int | None], etags: list[str], step: int) -> None:
        super().__init__()
        self._damages = iter(damages)
        self._etags = iter(etags)
        self._step = step
        self.asked: list[tuple[int, str | None]] = []

    def read_into(
        self,
        name: str,
        offset: int,
        buffer: memoryview,
        *,
        if_match: str | None = None,
        progress: OnReceived | None = None,
    ) -> None:
        self.asked.append((offset, if_match))
        etag = next(self._etags, if_match)
        if if_match is not None and if_match != etag:
            raise EtagDiffers(name, etag=str(etag), length_bytes=LENGTH)
        buffer[:] = DATA[offset : offset + len(buffer)]
        damage = next(self._damages, None)
        if damage is not None and offset <= damage:
            buffer[damage - offset] ^= 1
        for done in range(self._step, len(buffer), self._step):
            if progress is not None:
                progress(done)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestStore]:
    with open_test_store(tmp_path_factory.mktemp("checked") / "store") as opened:
        yield opened


class Fetched:
    """One fetch of all blocks from a scripted storage."""

    def __init__(self, store: TestStore, storage: Scripted) -> None:
        self.buffer = bytearray(LENGTH)
        self.blocks = CheckedBlocks(HOLDER, GRID, 0, memoryview(self.buffer))
        self.error: BlockDiffers | None = None
        self.etag: str | None = None
        try:
            self.etag = fetch(self.blocks, storage, Etags(store.metadata), NullMetrics())
        except BlockDiffers as exc:
            self.error = exc


@given(damages=st.lists(st.none() | st.integers(0, LENGTH - 1), max_size=3), step=st.integers(BLOCK // 3, 2 * LENGTH))
def test_bytes_are_right_or_the_second_bad_block_is_named(
    store: TestStore, damages: list[int | None], step: int
) -> None:
    storage = Scripted(damages, [], step)
    fetched = Fetched(store, storage)
    first, second = [*damages, None, None][:2]
    kept = 0 if first is None else first - first % BLOCK
    assert [offset for offset, _ in storage.asked] == ([0] if first is None else [0, kept])
    if first is None or second is None or second < kept:
        assert (fetched.error, bytes(fetched.buffer), fetched.blocks.filled) == (None, DATA, LENGTH)
        return
    assert fetched.error is not None
    assert fetched.error.block.start == fetched.blocks.filled == second - second % BLOCK
    assert fetched.buffer[: fetched.blocks.filled] == DATA[: fetched.blocks.filled]


@pytest.mark.parametrize(
    ("etags", "asked"),
    [
        ([], ["e"]),
        (["f"], ["e", "f"]),
        (["f", "g", "h"], ["e", "f", "g", None]),
    ],
)
def test_the_etag_that_is_there_is_asked_for_next_and_in_the_end_any(
    store: TestStore, etags: list[str], asked: list[str | None]
) -> None:
    storage = Scripted([], etags, BLOCK)
    fetched = Fetched(store, storage)
    assert [etag for _, etag in storage.asked] == asked
    assert (fetched.etag, bytes(fetched.buffer)) == (asked[-1], DATA)


def test_of_any_version_nothing_is_shown_before_all_is_there(store: TestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    show: Callable[[CheckedBlocks, int], None] = CheckedBlocks.show

    def watched(blocks: CheckedBlocks, checked: int) -> None:
        shown.append(checked)
        show(blocks, checked)

    monkeypatch.setattr(CheckedBlocks, "show", watched)
    Fetched(store, Scripted([], ["f", "g", "h"], BLOCK))
    assert shown == [LENGTH]
    shown.clear()
    Fetched(store, Scripted([], [], BLOCK))
    assert shown == [BLOCK, 2 * BLOCK, 3 * BLOCK, LENGTH]
