"""What only the storage of clouds does: conditions that the server decides, and sums that are compared."""

from __future__ import annotations

import random

import pytest
from azure.core.exceptions import ClientAuthenticationError

from tests.conformance.storages import place_storage
from tierfs.base.words.errors import AlreadyExists, DataLoss, NotFound, PermissionDenied
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.places import gcs
from tierfs.engine.chunkstore.places.azure import AzurePlace
from tierfs.engine.chunkstore.places.place_errors import map_place_errors
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.testing.chunk_storage import BrokenSource

BLOCK_BYTES = MIB // 4


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


def test_without_a_credential_of_azure_it_is_said_where_one_is_looked_for(azure_container: str) -> None:
    storage = place_storage(azure_container)
    place = storage.place
    with pytest.raises(PermissionDenied, match="no token") as told, map_place_errors(place, "abfs://c/p"):
        raise ClientAuthenticationError("no token\nwith a page of reasons")
    assert told.value.remedy == "check the credentials: docs/places.md lists those of each place"
    storage.close()


@pytest.mark.parametrize("size", [4 * BLOCK_BYTES, 4 * BLOCK_BYTES + 1])
def test_a_large_object_of_azure_is_made_of_blocks(azure_container: str, size: int) -> None:
    storage = place_storage(azure_container)
    place = storage.place
    assert isinstance(place, AzurePlace)
    limits = place._fs.service_client._config
    limits.max_single_put_size = limits.max_block_size = BLOCK_BYTES
    data = random.Random(size).randbytes(size)
    stored = storage.put("object", BufferSource(data), metadata={"attempt": "1"})
    properties = place._run(place._blob("object").get_block_list())
    assert len(properties[0]) == -(-size // BLOCK_BYTES)
    with pytest.raises(AlreadyExists):
        storage.put("object", BufferSource(bytes(size)), metadata={"attempt": "2"})
    with pytest.raises(DataLoss, match="damaged"):
        storage.put("broken", BrokenSource(data))
    buffer = bytearray(size)
    storage.read_into("object", 0, memoryview(buffer), if_match=stored.etag)
    assert bytes(buffer) == data
    assert [listed.name for listed in storage.list("")] == ["object"], "blocks without a commit are no object"
    storage.close()
