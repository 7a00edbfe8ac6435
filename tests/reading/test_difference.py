"""The first byte in which two segments differ, wherever it is, and in whichever tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import new_store, tierfs
from tierfs.app.store import open_store
from tierfs.base.words.types import MIB
from tierfs.engine.metadata import directories
from tierfs.reading.difference import first_difference

DATA = bytes(range(251)) * (5 * MIB // 502)
"""Two and a half blocks of a comparison."""


@pytest.mark.parametrize("at", [0, 1, MIB - 1, MIB, 2 * MIB + 77, len(DATA) - 1])
def test_the_first_difference_is_found(tmp_path: Path, at: int) -> None:
    other = DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 : -1] + b"?"
    assert compared(new_store(tmp_path), DATA, other) == at


@pytest.mark.parametrize(
    ("left", "right", "common"), [(DATA, DATA, None), (DATA, DATA[:-1], len(DATA) - 1), (b"", b"x", 0)]
)
def test_of_equal_beginnings_the_shorter_one_ends(
    tmp_path: Path, left: bytes, right: bytes, common: int | None
) -> None:
    store = new_store(tmp_path)
    assert compared(store, left, right) == common
    assert compared(store, right, left, ("c", "d")) == common


def compared(store: Path, left: bytes, right: bytes, names: tuple[str, str] = ("a", "b")) -> int | None:
    for name, data in zip(names, (left, right), strict=True):
        tierfs("-q", "append", name, store=store, stdin=data)
    tierfs("-q", "offload", names[0], store=store)
    tierfs("-q", "evict", names[0], store=store)
    with open_store(store) as opened:
        with opened.metadata.read() as txn:
            first, second = (directories.segment_by_name(txn, name) for name in names)
        return first_difference(opened.reader(), first, second, None)
