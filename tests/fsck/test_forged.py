"""The limit of a CRC: it finds what happens to bytes, and not what somebody does to them on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fsck.looking import deep_findings, flip_cold, holder_at
from tests.stores import TestStore, open_test_store
from tierfs.checksum import crc32c
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.types import Tier

DATA = b"pay 10 to alice, reference 0000."


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    policy = {"chunk_bytes": "1024", "object_bytes": "1024"}
    with open_test_store(tmp_path / "store", policy=policy) as opened:
        opened.append("s", DATA, seal=True)
        opened.offload()
        opened.evict(force=True)
        yield opened


def forged(prefix: bytes, suffix: bytes, wanted: int) -> bytes:
    """Return prefix, four bytes and suffix that have this CRC32C: it is linear in the bits of the four."""

    def crc(free: int) -> int:
        return crc32c(prefix + free.to_bytes(4, "little") + suffix)

    rows = [(crc(1 << bit) ^ crc(0), 1 << bit) for bit in range(32)]
    left, free = wanted ^ crc(0), 0
    for bit in range(32):
        pivot = next(row for row in rows if row[0] >> bit & 1)
        rows = [(row[0] ^ pivot[0], row[1] ^ pivot[1]) if row[0] >> bit & 1 else row for row in rows if row != pivot]
        if left >> bit & 1:
            left, free = left ^ pivot[0], free ^ pivot[1]
    assert crc(free) == wanted
    return prefix + free.to_bytes(4, "little") + suffix


def test_an_accident_is_found(store: TestStore) -> None:
    flip_cold(store, "s", 7)
    assert [finding.kind for finding in deep_findings(store)] == ["bytes-damaged"]


def test_four_chosen_bytes_pass_every_check(store: TestStore) -> None:
    record, _ = holder_at(store, "s", Tier.COLD, 0)
    data = forged(b"pay 99 to mallory, ref. ", DATA[28:], crc32c(DATA))
    assert len(data) == len(DATA)
    assert isinstance(store.cold, MemoryStorage)
    held = store.cold._objects[record.name]
    store.cold._objects[record.name] = replace(held, data=data)
    assert store.read("s", Tier.COLD) == data != DATA
    assert deep_findings(store) == []
