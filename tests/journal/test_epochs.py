"""Store epochs in the bucket: recorded once, whatever else lies beside them."""

from __future__ import annotations

import pytest

from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource
from tierfs.errors import Fenced
from tierfs.journal import epochs
from tierfs.metadata.journal_state import MAX_EPOCH
from tierfs.metadata.store import new_id

STORE = new_id()


def test_the_newest_that_began() -> None:
    storage = MemoryStorage()
    assert epochs.newest(storage) == 0
    for epoch in (2, 17, MAX_EPOCH, 3):
        epochs.begin(storage, epoch, STORE, 0)
        assert epochs.newest(storage) == max(int(item.name[-10:]) for item in storage.list(epochs.EPOCHS_PREFIX))


@pytest.mark.parametrize("name", ["2", f"{MAX_EPOCH + 1:010d}", "9" * 10, "9" * 11, "٢" * 10, "0000000002/x", "x"])
def test_what_no_owner_writes_is_ignored(name: str) -> None:
    storage = MemoryStorage()
    storage.put(f"{epochs.EPOCHS_PREFIX}{name}", BufferSource(b"x"))
    assert epochs.newest(storage) == 0


def test_an_epoch_begins_once() -> None:
    storage = MemoryStorage()
    epochs.begin(storage, 2, STORE, 0)
    with pytest.raises(Fenced, match="with epoch 2"):
        epochs.begin(storage, 2, STORE, 0)
