"""What only the storage of clouds does: conditions that the server decides, and sums that are compared."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.storage.blob.aio import ContainerClient

from tests.conformance.storages import place_storage
from tierfs.base.words.errors import AlreadyExists, DataLoss, NotFound, PermissionDenied, Unavailable
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.places import azure, gcs
from tierfs.engine.chunkstore.places.azure import AzurePlace
from tierfs.engine.chunkstore.places.place_errors import map_place_errors
from tierfs.engine.chunkstore.places.storage import PlaceStorage
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


MANY = [*(f"journal/{number:020d}" for number in range(5)), "dot.", "50% ü&?#", "missing"]
"""As a checkpoint deletes old slots: a name that is missing, or coded, is no error."""


def test_many_objects_of_azure_go_with_one_request(azure_container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = place_storage(azure_container)
    batches = list[int]()
    send = ContainerClient.delete_blobs

    def counted(self: ContainerClient, *blobs: str, **options: Any) -> Any:
        batches.append(len(blobs))
        return send(self, *blobs, **options)

    monkeypatch.setattr(ContainerClient, "delete_blobs", counted)
    monkeypatch.setattr(azure, "BATCH", 3)
    assert not storage.delete_many(MANY), "Azurite cuts a header at every =, and Python's separators have some"
    monkeypatch.setattr("email.generator.Generator._make_boundary", lambda *_: uuid.uuid4().hex)
    batches.clear()
    deletes_many(storage)
    assert batches == [3, 3, 2] * 2
    storage.close()


def test_many_objects_of_gcs_go_with_one_request(gcs_bucket: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    storage = place_storage(*gcs_bucket)
    monkeypatch.setattr(gcs, "BATCH", 3)
    deletes_many(storage)
    storage.close()


def deletes_many(storage: PlaceStorage) -> None:
    for name in [*MANY[:-1], "other"]:
        storage.put(name, BufferSource(b"bytes"))
    for _ in range(2):
        assert storage.delete_many(MANY)
    assert [each.name for each in storage.list("")] == ["other"]


class Part:
    """The answer to one part of a batch."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


def answered(codes: list[int] | HttpResponseError) -> Callable[..., Awaitable[AsyncIterator[Part]]]:
    """What a server says to a batch."""

    async def delete_blobs(*_: object, **__: object) -> AsyncIterator[Part]:
        if isinstance(codes, HttpResponseError):
            raise codes
        return parts(codes)

    async def parts(codes: list[int]) -> AsyncIterator[Part]:
        for code in codes:
            yield Part(code)

    return delete_blobs


def refused(status_code: int) -> HttpResponseError:
    error = HttpResponseError("refused")
    error.status_code = status_code
    return error


@pytest.mark.parametrize("answer", [[202], [], [400], refused(501), refused(403), refused(400)])
def test_a_server_of_azure_that_does_not_confirm_each_name_is_not_believed(
    azure_container: str, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    storage = place_storage(azure_container)
    monkeypatch.setattr(ContainerClient, "delete_blobs", answered(answer))
    assert not storage.delete_many(["a", "b"])
    storage.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ([202, 403], PermissionDenied),
        ([403, 503], Unavailable),
        (refused(503), Unavailable),
        (refused(429), Unavailable),
    ],
)
def test_an_object_of_azure_that_stays_is_an_error(
    azure_container: str, monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[Exception]
) -> None:
    storage = place_storage(azure_container)
    monkeypatch.setattr(ContainerClient, "delete_blobs", answered(answer))
    with pytest.raises(error):
        storage.delete_many(["a", "b"])
    storage.close()


@pytest.mark.parametrize("status", [200, 403, 404])
@pytest.mark.usefixtures("gcs_bucket")
def test_a_server_of_gcs_without_batches_deletes_one_by_one(status: int) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        storage = place_storage("gs://bucket/prefix", f"http://127.0.0.1:{server.server_port}")
        assert not storage.delete_many(["a", "b"])
        storage.close()
        server.shutdown()


def test_other_places_delete_one_by_one() -> None:
    storage = place_storage(f"memory://{uuid.uuid4().hex}")
    assert not storage.delete_many(["a"])
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
