"""Plain cold bytes that a policy wants compressed, as `tierfs status` counts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stores import TestStore, open_test_store
from tests.tiering.cold_pieces import cold_pieces, cut_head
from tierfs.base.words.types import ChunkState, PayloadEncoding
from tierfs.engine.metadata import policies, tables
from tierfs.engine.metadata.tables import CHUNKS, OBJECTS
from tierfs.upkeep.holder.uncompressed import Uncompressed, uncompressed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    """With two cold segments that no policy wants compressed, and one that is on its disk alone."""
    with open_test_store(tmp_path / "store", policy={"chunk_bytes": "1000000", "object_bytes": "2000000"}) as opened:
        cold_pieces(opened, 100, 200, name="d/a")
        cold_pieces(opened, 1000, name="b")
        opened.append("d/local", b"x" * 50)
        yield opened


def counted(store: TestStore) -> tuple[int, int]:
    with store.metadata.read() as txn:
        plain = uncompressed(txn)
    assert plain.is_all
    return plain.segments, plain.bytes


def compress(store: TestStore, path: str = "", compression: str = "zstd") -> None:
    with store.metadata.write() as txn:
        policies.change(txn, path, put_settings={"compression": compression})


def test_without_such_a_policy_there_is_nothing(store: TestStore) -> None:
    assert counted(store) == (0, 0)
    compress(store, compression="off")
    assert counted(store) == (0, 0)


def test_the_nearest_policy_decides(store: TestStore) -> None:
    compress(store)
    assert counted(store) == (2, 1300)
    compress(store, "d", "off")
    assert counted(store) == (1, 1000)
    compress(store, "d/a", "auto")
    assert counted(store) == (2, 1300)
    compress(store, "", "off")
    assert counted(store) == (1, 300)


def test_bytes_that_were_cut_off_do_not_count(store: TestStore) -> None:
    compress(store)
    cut_head(store, "d/a", 40)
    assert counted(store) == (2, 1260)


@pytest.mark.parametrize("changes", [{"foreign": True}, {"references": 2}, {"location_id": 9}], ids=str)
def test_objects_that_stay_do_not_count(store: TestStore, changes: dict[str, object]) -> None:
    compress(store)
    record = store.layout("b").cold[0].object
    with store.metadata.write() as txn:
        txn.put(OBJECTS, tables.u64(record.id), replace(record, **changes))  # type: ignore[arg-type]
    assert counted(store) == (1, 300)


def test_auto_does_not_look_again_at_what_it_kept_plain(store: TestStore) -> None:
    """The bytes are random."""
    compress(store, compression="auto")
    cold_pieces(store, 2000, name="e")
    assert counted(store) == (2, 1300)
    compress(store)
    assert counted(store) == (3, 3300)


def test_bytes_that_were_compressed_do_not_count(store: TestStore) -> None:
    compress(store, "d")
    store.append("d/a", b"x" * 5000)
    store.offload("d/a")
    assert store.layout("d/a").cold[2].object.encoding is PayloadEncoding.ZSTD_FRAMES
    assert counted(store) == (1, 300)


def test_suspect_chunks_do_not_count(store: TestStore) -> None:
    compress(store)
    placed = store.layout("d/a").cold[1]
    with store.metadata.write() as txn:
        key = tables.chunk(store.segment("d/a").id, placed.object.tier, placed.chunk.start_offset)
        txn.put(CHUNKS, key, replace(placed.chunk, state=ChunkState.SUSPECT))
    assert counted(store) == (2, 1100)


def test_a_damaged_record_hides_no_other_segment(store: TestStore) -> None:
    compress(store)
    with store.metadata.write() as txn:
        txn.delete(OBJECTS.name, tables.u64(store.layout("b").cold[0].object.id))
    assert counted(store) == (1, 300)


def test_of_a_large_store_a_part_is_looked_at(store: TestStore) -> None:
    compress(store)
    with store.metadata.read() as txn:
        assert uncompressed(txn, 3) == Uncompressed(1, 300, is_all=False)
