"""The contract of ChunkStorage.compose, on every provider and wrapper, and who carries the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conformance.storages import COMPOSING, FAR, PREFIX, opened, s3_storage
from tests.conftest import Bucket
from tierfs.base.system.metrics import MetricName
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import DataLoss
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.s3.storage import S3Storage
from tierfs.engine.testing import compose
from tierfs.engine.testing.chunk_storage import names, read
from tierfs.engine.testing.compose import CONTENT, sources

s3_servers = pytest.mark.parametrize(
    "server", [pytest.param("moto", marks=pytest.mark.whole), pytest.param("rgw", marks=pytest.mark.s3)]
)


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Iterator[ChunkStorage]:
    with opened(request.param, request) as storage:
        yield storage


@pytest.mark.parametrize("storage", COMPOSING, indirect=True)
class TestComposing(compose.Composes): ...


@pytest.mark.whole
@pytest.mark.parametrize("storage", FAR, indirect=True)
class TestComposingFarAway(compose.Composes): ...


@pytest.mark.parametrize("storage", FAR, indirect=True)
def test_a_place_of_a_server_composes_of_ranges(storage: ChunkStorage) -> None:
    compose.Composes().test_ranges_of_objects_one_of_them_twice(storage)


def assert_no_uploads(storage: ChunkStorage) -> None:
    if isinstance(storage, S3Storage):
        answer = storage.client.list_multipart_uploads(Bucket=storage.location.bucket)
        assert answer.get("Uploads", []) == []


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
            storage.client.meta.events.register(f"provide-client-params.s3.{operation}", self._sent)

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
                storage.client.put_object(Bucket=bucket[1], Key=key, Body=CONTENT[: 6 * MIB][::-1])

        storage.client.meta.events.register_first("provide-client-params.s3.UploadPartCopy", replace_source)
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

        storage.client.meta.events.register("provide-client-params.s3.UploadPartCopy", keep)
        storage.compose("made", pieces)
        assert asked == [f'"{piece.etag}"' for piece in pieces]
