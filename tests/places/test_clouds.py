"""What only the storage of clouds does: conditions that the server decides, and sums that are compared."""

from __future__ import annotations

import pytest

from tests.conformance.storages import place_storage
from tierfs.chunkstore.places import gcs
from tierfs.chunkstore.protocol import BufferSource
from tierfs.errors import AlreadyExists, DataLoss, NotFound


def test_a_name_that_is_taken_is_refused_by_gcs(gcs_bucket: tuple[str, str]) -> None:
    storage = place_storage(*gcs_bucket)
    first = storage.put("slot", BufferSource(b"first"), metadata={"attempt": "1"})
    with pytest.raises(AlreadyExists):
        storage.put("slot", BufferSource(b"other"), metadata={"attempt": "2"})
    assert storage.stat("slot") == first
    storage.close()


def test_bytes_that_were_damaged_on_their_way_are_removed(
    gcs_bucket: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = place_storage(*gcs_bucket)
    monkeypatch.setattr(gcs, "crc32c", lambda data, crc=0: 1)
    with pytest.raises(DataLoss, match="damaged on its way"):
        storage.put("object", BufferSource(b"bytes"))
    monkeypatch.undo()
    with pytest.raises(NotFound):
        storage.stat("object")
    storage.close()
