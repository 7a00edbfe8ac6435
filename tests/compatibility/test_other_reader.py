"""A bucket can be read by a program written from docs/format.md alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compatibility.other_reader import read_pack, read_segments
from tests.stores import TestStore, open_test_store
from tierfs.base.options.config import OffloadSettings
from tierfs.base.words.types import MIB
from tierfs.engine.journal import levels


def bucket_of(store: TestStore) -> dict[str, bytes]:
    """Every segment, as the other program reads it."""

    def get(name: str) -> bytes:
        buffer = memoryview(bytearray(store.cold.stat(name).length_bytes))
        store.cold.read_into(name, 0, buffer)
        return bytes(buffer)

    return read_segments([found.name for found in store.cold.list("")], get)


@pytest.mark.parametrize(("checkpoint_entries", "small_bytes"), [(1, MIB), (3, MIB), (1000, MIB), (1, 0), (3, 0)])
def test_every_byte_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint_entries: int, small_bytes: int
) -> None:
    """Without a small state the checkpoints have levels."""
    monkeypatch.setattr(levels, "SMALL_BYTES", small_bytes)
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
        store.engine.truncate("d/e/a", 3, cold_due_ms=0)
        store.engine.concat("b", "d/e/a")
        store.engine.truncate("b", 5, cold_due_ms=0)
        store.offload()
        assert bucket_of(store) == {"empty": b"", "b": b" open, and longer3456789abcdefgh"}
        store.engine.seal("b")
        store.engine.unseal("b")
        store.append("b", b"nop")
        store.offload()
        assert bucket_of(store)["b"] == b" open, and longer3456789abcdefghnop"
        assert any("/0-part-" in item.name for item in store.cold.list("journal/")) == (not small_bytes)


@pytest.mark.parametrize("checkpoint_entries", [1, 1000])
def test_every_byte_of_packs_is_found_by_journal_and_by_index(tmp_path: Path, checkpoint_entries: int) -> None:
    settings = OffloadSettings(checkpoint_entries=checkpoint_entries)
    policy = {"chunk_bytes": "4096", "object_bytes": "65536"}
    with open_test_store(tmp_path / "store", policy=policy, settings=settings) as store:
        data = {f"d/{number}": bytes([number]) * (100 + number) for number in range(12)}
        for name, content in data.items():
            store.append(name, content, seal=True)
        store.append("open", b"still open")
        store.offload()
        store.append("open", b", and longer")
        store.append("other", b"other")
        store.offload()
        store.engine.delete("d/7", recursive=False, cold_due_ms=0)
        store.offload()
        names = [found.name for found in store.cold.list("packs/")]
        assert len(names) == 2
        by_index = {}
        for name in names:
            buffer = memoryview(bytearray(store.cold.stat(name).length_bytes))
            store.cold.read_into(name, 0, buffer)
            by_index |= read_pack(bytes(buffer))
        del data["d/7"]
        found = bucket_of(store)
        assert found == {**data, "open": b"still open, and longer", "other": b"other"}
        assert by_index.pop(("d/7", 0)) == bytes([7]) * 107
        assert by_index.pop(("open", 10)) == b", and longer"
        assert by_index == {(name, 0): content[:10] if name == "open" else content for name, content in found.items()}
