"""Collector: what a pass remembers of the rows it looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores import open_test_store
from tierfs.errors import StorageFull
from tierfs.garbage.collect import Collected, Collector
from tierfs.metadata.store import MetadataStore


def test_what_an_error_kept_from_being_deleted_is_deleted_by_the_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without waiting until rows that were left are looked at again."""
    with open_test_store(tmp_path / "store") as store:
        store.append("s", b"abcd", seal=True)
        store.engine.delete("s", recursive=False, cold_due_ms=0)
        with store.holding() as work:
            work.publish()
            work._dismantle()
        collector = Collector(store.metadata, store.files, lambda _: store.cold)

        def full(_: MetadataStore) -> None:
            raise StorageFull("the disk of the metadata is full")

        with monkeypatch.context() as patched:
            patched.setattr(MetadataStore, "write", full)
            with pytest.raises(StorageFull):
                collector.collect()
        assert collector.collect() == Collected(deleted=1, bytes=4)
        assert collector.collect() == Collected()
