"""What a person removes can be restored for as long as policy says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fsck.looking import findings
from tests.stores import TestStore, open_test_store
from tierfs.errors import NotFound
from tierfs.segments import trash
from tierfs.segments.delete import Deletion

DAY_S = 86_400


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store") as opened:
        yield opened
        assert findings(opened) == []


def remove(store: TestStore, path: str, *, recursive: bool = False) -> Deletion:
    due_ms = store.clock.now_ms()
    return store.engine.delete(path, recursive=recursive, cold_due_ms=due_ms, to_trash=True)


def names_in(store: TestStore) -> list[str]:
    with store.metadata.read() as txn:
        return [each.removal.path for each in trash.removed(txn)]


def test_a_removed_segment_comes_back_with_both_tiers(store: TestStore) -> None:
    store.append("d/a", b"cold")
    store.offload()
    store.append("d/a", b"local")
    done = remove(store, "d/a")
    assert (done.segments, done.bytes, done.uncovered_bytes) == (1, 9, 5)
    assert done.trash_due_ms == store.clock.now_ms() + DAY_S * 1000
    with pytest.raises(NotFound):
        store.read("d/a")
    assert names_in(store) == ["d/a"]
    assert trash.restore(store.metadata, "d/a")[0] == "d/a"
    assert names_in(store) == []
    assert store.read("d/a") == b"coldlocal"
