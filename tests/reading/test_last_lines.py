"""The place of the last lines: as tail(1) finds it, however long the lines are, and in either tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import new_store, tierfs
from tierfs.app.store import open_store
from tierfs.base.words.types import CRC_BLOCK_BYTES, ReadPriority
from tierfs.engine.metadata import directories
from tierfs.reading.last_lines import start_of_last_lines

LONG = b"x" * (2 * CRC_BLOCK_BYTES + 7)
DATA = b"".join(
    [b"%d\n" % number for number in range(40_000)] + [LONG, b"\n", b"\n\n", LONG[: CRC_BLOCK_BYTES - 1], b"\n"]
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = new_store(tmp_path_factory.mktemp("lines"))
    tierfs("-q", "append", "lines", store=store, stdin=DATA)
    tierfs("-q", "offload", "lines", store=store)
    return store


@pytest.mark.parametrize("priority", [ReadPriority.LOCAL_ONLY, ReadPriority.OFFLOADED_ONLY])
@pytest.mark.parametrize("end", [len(DATA), len(DATA) - 1, len(DATA) - CRC_BLOCK_BYTES, len(DATA) // 3, 0])
def test_last_lines_start_where_tail_finds_them(store: Path, end: int, priority: ReadPriority) -> None:
    lines = DATA[:end].splitlines(keepends=True)
    with open_store(store) as opened:
        with opened.metadata.read() as txn:
            segment = directories.segment_by_name(txn, "lines")
        for wanted in (0, 1, 2, 3, 4, 5, 6, 30_000, 40_003, 50_000):
            last = lines[-wanted:] if wanted else []
            start = start_of_last_lines(opened.reader(), segment, wanted, end, priority)
            assert start == end - sum(map(len, last)), wanted


def test_the_last_lines_of_a_trimmed_segment_start_in_it(store: Path) -> None:
    tierfs("-q", "append", "trimmed", store=store, stdin=b"one\ntwo\nthree\n")
    tierfs("-q", "trim", "trimmed", "--before", "5", "--yes", store=store)
    assert tierfs("cat", "--tail", "9", "trimmed", store=store).out == "wo\nthree\n"
