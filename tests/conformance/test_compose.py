"""The contract of ChunkStorage.compose, on every provider and wrapper, and who carries the bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from tests.conformance.storages import PREFIX, STORAGES, opened, s3_storage
from tests.conformance.test_chunk_storage import names, put, read, refuses, writes
from tests.conftest import Bucket
from tierfs.chunkstore.protocol import BufferSource, ChunkStorage, ObjectPiece, StoredObject
from tierfs.chunkstore.resilient import ResilientStorage
from tierfs.chunkstore.s3.storage import S3Storage
from tierfs.errors import AlreadyExists, DataLoss, InvalidRequest, NotFound
from tierfs.metrics import MetricName, Metrics
from tierfs.types import MIB

CONTENT = random.Random(21).randbytes(20 * MIB)


s3_servers = pytest.mark.parametrize(
    "server", [pytest.param("moto", marks=pytest.mark.whole), pytest.param("rgw", marks=pytest.mark.s3)]
)


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> Iterator[ChunkStorage]:
    with opened(request.param, request) as storage:
        yield storage


def whole(stored: StoredObject) -> ObjectPiece:
    return ObjectPiece(stored.name, 0, stored.length_bytes, stored.etag)


def part(stored: StoredObject, offset: int, length_bytes: int) -> ObjectPiece:
    return ObjectPiece(stored.name, offset, length_bytes, stored.etag)


def sources(storage: ChunkStorage, sizes: Sequence[int]) -> tuple[list[ObjectPiece], bytes]:
    """Objects of these sizes, and their bytes one after another."""
    pieces, data = [], b""
    for number, size in enumerate(sizes):
        start = number * 999_983 % (len(CONTENT) - size)
        pieces.append(whole(put(storage, f"source/ü+{number}", CONTENT[start : start + size])))
        data += CONTENT[start : start + size]
    return pieces, data


@writes
@pytest.mark.parametrize(
    "sizes",
    [
        [1],
        [5, 1, 1000],
        [5 * MIB, 5 * MIB + 1, 7 * MIB],
        [5 * MIB, 6 * MIB, 10],
        [10, 12 * MIB, 10, 20, 5 * MIB],
        [6 * MIB, 3, 6 * MIB, MIB],
    ],
    ids=lambda sizes: "-".join(f"{size / MIB:.3g}" for size in sizes),
)
def test_pieces_in_order(storage: ChunkStorage, sizes: list[int]) -> None:
    pieces, data = sources(storage, sizes)
    made = storage.compose("made/object", pieces, metadata={"attempt": "1", "start": "0"})
    assert (made.name, made.length_bytes) == ("made/object", len(data))
    assert made.metadata == {"attempt": "1", "start": "0"}
    found = storage.stat("made/object")
    assert (found.etag, found.length_bytes, found.metadata) == (made.etag, made.length_bytes, made.metadata)
    assert read(storage, "made/object", 0, len(data), if_match=made.etag) == data
    assert all(storage.stat(piece.name).etag == piece.etag for piece in pieces)


def test_ranges_of_objects_one_of_them_twice(storage: ChunkStorage) -> None:
    first, second = put(storage, "first", CONTENT[: 12 * MIB]), put(storage, "second", CONTENT[-7 * MIB :])
    ranges = [(first, 100, 6 * MIB), (second, 1, 5), (first, 6 * MIB + 100, 5 * MIB + 1), (first, 0, 6 * MIB)]
    storage.compose("made", [part(*one) for one in ranges])
    expected = b"".join(
        (CONTENT[: 12 * MIB] if one is first else CONTENT[-7 * MIB :])[offset : offset + length]
        for one, offset, length in ranges
    )
    assert read(storage, "made", 0, len(expected)) == expected


@pytest.mark.parametrize("size", [5, 6 * MIB])
def test_create_only_keeps_what_is_there(storage: ChunkStorage, size: int) -> None:
    pieces, data = sources(storage, [size, size])
    taken = put(storage, "taken", b"taken", attempt="1")
    with pytest.raises(AlreadyExists):
        storage.compose("taken", pieces, metadata={"attempt": "2"})
    assert storage.stat("taken") == taken
    assert storage.compose("taken", pieces, create_only=False).length_bytes == len(data)
    assert read(storage, "taken", 0, len(data)) == data


@pytest.mark.parametrize("size", [100, 6 * MIB])
@pytest.mark.parametrize("wrong", ["replaced", "missing", "short"])
def test_a_piece_that_is_not_there_makes_nothing(storage: ChunkStorage, size: int, wrong: str) -> None:
    pieces, _ = sources(storage, [size, size, size])
    if wrong == "replaced":
        storage.put(pieces[1].name, BufferSource(CONTENT[7 : 7 + size]), create_only=False)
    elif wrong == "missing":
        storage.delete(pieces[1].name)
    else:
        pieces[1] = ObjectPiece(pieces[1].name, 1, size, pieces[1].etag)
    with pytest.raises(NotFound if wrong == "missing" else DataLoss):
        storage.compose("made", pieces)
    assert names(storage, "made") == []
    assert_no_uploads(storage)


def assert_no_uploads(storage: ChunkStorage) -> None:
    if isinstance(storage, S3Storage):
        answer = storage._client.list_multipart_uploads(Bucket=storage.location.bucket)
        assert answer.get("Uploads", []) == []


@refuses
def test_what_is_no_piece_is_refused(storage: ChunkStorage) -> None:
    stored = put(storage, "object", b"bytes")
    for pieces in ([], [part(stored, 0, 0)], [part(stored, -1, 2)], [ObjectPiece("a/../b", 0, 1, stored.etag)]):
        with pytest.raises(InvalidRequest):
            storage.compose("made", pieces)
    for name, metadata in (("", {}), ("made", {"Upper": "x"})):
        with pytest.raises(InvalidRequest):
            storage.compose(name, [whole(stored)], metadata=metadata)
    assert names(storage) == ["object"]


@s3_servers
@pytest.mark.parametrize(
    ("sizes", "uploaded"),
    [
        ([5 * MIB, 6 * MIB, 5 * MIB + 1], 0),
        ([5 * MIB, 6 * MIB, 10], 0),
        ([6 * MIB, 3, 12 * MIB], 5 * MIB),
        ([1000] * 40, 40_000),
    ],
)
def test_the_server_copies_what_it_can(
    server: str, sizes: list[int], uploaded: int, request: pytest.FixtureRequest
) -> None:
    bucket: Bucket = request.getfixturevalue(f"{server}_bucket")
    with closing(s3_storage(bucket)) as bare:
        metrics = Metrics()
        storage = ResilientStorage(bare, metrics=metrics)
        pieces, data = sources(storage, sizes)
        sent = SentBytes(bare)
        made = storage.compose("made", pieces)
        assert (made.client_bytes, sent.total) == (uploaded, uploaded)
        assert read(storage, "made", 0, len(data)) == data
    ways = metrics.values(MetricName.COMPOSED_BYTES)
    assert ways == {("cold", "client"): uploaded, ("cold", "server"): len(data) - uploaded}


class SentBytes:
    """Counts what a storage's client sends as the bytes of objects and parts, from now on."""

    def __init__(self, storage: S3Storage) -> None:
        self.total = 0
        for operation in ("PutObject", "UploadPart"):
            storage._client.meta.events.register(f"provide-client-params.s3.{operation}", self._sent)

    def _sent(self, params: dict[str, object], **_: object) -> None:
        self.total += len(params["Body"])  # type: ignore[arg-type]


@s3_servers
def test_a_source_replaced_while_its_bytes_are_copied(server: str, request: pytest.FixtureRequest) -> None:
    """Also where the server ignores the condition on a copy's source."""
    bucket: Bucket = request.getfixturevalue(f"{server}_bucket")
    with closing(s3_storage(bucket)) as storage:
        pieces, _ = sources(storage, [5 * MIB, 6 * MIB])

        def replace_source(params: dict[str, object], **_: object) -> None:
            params.pop("CopySourceIfMatch")
            key = f"{PREFIX}/{pieces[1].name}"
            if params["CopySource"]["Key"] == key:  # type: ignore[index]
                storage._client.put_object(Bucket=bucket[1], Key=key, Body=CONTENT[: 6 * MIB][::-1])

        storage._client.meta.events.register_first("provide-client-params.s3.UploadPartCopy", replace_source)
        with pytest.raises(DataLoss, match="replaced"):
            storage.compose("made", pieces)
        assert names(storage, "made") == []
        assert_no_uploads(storage)


def test_the_server_is_told_which_bytes_are_meant(moto_bucket: Bucket) -> None:
    with closing(s3_storage(moto_bucket)) as storage:
        pieces, _ = sources(storage, [5 * MIB, 6 * MIB])
        asked: list[str] = []

        def keep(params: dict[str, str], **_: object) -> None:
            asked.append(params.get("CopySourceIfMatch", ""))

        storage._client.meta.events.register("provide-client-params.s3.UploadPartCopy", keep)
        storage.compose("made", pieces)
        assert asked == [f'"{piece.etag}"' for piece in pieces]
