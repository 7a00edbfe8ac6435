"""A bucket can be read by a program written from docs/format.md alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tests.versions.other_reader import read_segments
from tierfs.config import OffloadSettings


def bucket_of(store: TestStore) -> dict[str, bytes]:
    """Every segment, as the other program reads it."""

    def get(name: str) -> bytes:
        buffer = memoryview(bytearray(store.cold.stat(name).length_bytes))
        store.cold.read_into(name, 0, buffer)
        return bytes(buffer)

    return read_segments([found.name for found in store.cold.list("")], get)


@pytest.mark.parametrize("checkpoint_entries", [1, 3, 1000])
def test_every_byte_is_found(tmp_path: Path, checkpoint_entries: int) -> None:
    settings = OffloadSettings(checkpoint_entries=checkpoint_entries)
    with open_test_store(tmp_path / "store", settings=settings) as store:
        store.append("d/e/a", b"0123456789", b"abcdefgh", seal=True)
        store.append("empty", b"", seal=True)
        store.append("gone", b"gone", seal=True)
        store.offload()
        store.append("b", b"still open")
        store.offload("b")
        store.append("b", b", and longer")
        store.engine.delete("gone", recursive=False, cold_due_ms=0)
        store.offload("b")
        assert bucket_of(store) == {"d/e/a": b"0123456789abcdefgh", "empty": b"", "b": b"still open, and longer"}


@pytest.mark.parametrize("checkpoint_entries", [1, 1000])
def test_every_byte_is_found_after_all_verbs(tmp_path: Path, checkpoint_entries: int) -> None:
    settings = OffloadSettings(checkpoint_entries=checkpoint_entries)
    with open_test_store(tmp_path / "store", settings=settings) as store:
        store.append("t", b"0123456789")
        store.append("s", b"abcdefghijklm", seal=True)
        store.offload()
        store.engine.truncate("s", 3, cold_due_ms=0)
        store.engine.concat("t", "s")
        store.engine.truncate("t", 5, cold_due_ms=0)
        store.offload()
        assert bucket_of(store) == {"t": b"56789defghijklm"}
        store.engine.seal("t")
        store.engine.unseal("t")
        store.append("t", b"nop")
        store.offload()
        assert bucket_of(store) == {"t": b"56789defghijklmnop"}
