"""Sizes that design §5 promises, measured in bytes and counted in records, never in seconds."""

from __future__ import annotations

from pathlib import Path

from tests.stores import open_test_store
from tierfs.metadata import layout
from tierfs.types import Tier

CHUNKS = 2000
MAX_RECORD_BYTES_PER_CHUNK = 300


def test_a_chunk_costs_at_most_300_bytes_of_records(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s") as store:
        store.append("logs/s", b"abcd" * CHUNKS)
        with store.metadata.read() as txn:
            rows = [
                len(key) + len(data)
                for name in (b"chunks", b"objects", b"checksums")
                for key, data in txn.scan_raw(name)
            ]
        assert len(rows) == 3 * CHUNKS
        assert sum(rows) / CHUNKS <= MAX_RECORD_BYTES_PER_CHUNK


def test_opening_a_file_loads_a_window_and_not_the_chain(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "s") as store:
        store.append("logs/s", b"abcd" * CHUNKS)
        segment = store.segment("logs/s")
        with store.metadata.read() as txn:
            middle = layout.load(txn, segment, 4 * 1000 + 1)
        assert len(middle.local) == layout.WINDOW_CHUNKS
        assert middle.chunks(Tier.LOCAL)[0].range.start == 4000
        assert middle.window.start == 4000
        assert middle.window.end == 4000 + 4 * layout.WINDOW_CHUNKS
