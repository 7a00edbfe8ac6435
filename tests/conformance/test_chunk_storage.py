"""The contract of ChunkStorage and Uploads, on every provider and wrapper."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.storages import KEEPING, PAGES, READING, REFUSING, STORAGES, WRITING, opened
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.s3.storage import S3Storage
from tierfs.engine.testing import chunk_storage, suite
from tierfs.engine.testing.chunk_storage import CREATORS, names, put

PAGE = 4
MANY = 1003
"""More than one page of an S3 listing."""


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest) -> Iterator[ChunkStorage]:
    with opened(request.param, request) as storage:
        yield storage


@pytest.mark.parametrize("storage", READING, indirect=True)
class TestReading(chunk_storage.Reads): ...


@pytest.mark.parametrize("storage", WRITING, indirect=True)
class TestWriting(chunk_storage.Writes): ...


@pytest.mark.parametrize("storage", KEEPING, indirect=True)
class TestKeeping(chunk_storage.Keeps):
    def test_exactly_one_of_concurrent_creators_wins(
        self, storage: ChunkStorage, request: pytest.FixtureRequest
    ) -> None:
        if "moto" in request.node.name:
            pytest.skip("moto looks before it writes, without a lock")
        super().test_exactly_one_of_concurrent_creators_wins(storage)


@pytest.mark.parametrize("storage", REFUSING, indirect=True)
class TestRefusing(chunk_storage.Refuses): ...


class TestEnding(chunk_storage.Ends): ...


def test_the_suite_of_users_has_every_part_of_the_contract() -> None:
    parts = (chunk_storage.Reads, chunk_storage.Writes, chunk_storage.Keeps, chunk_storage.Refuses)
    assert all(issubclass(suite.ChunkStorageSuite, part) for part in parts)


@pytest.mark.parametrize("storage", PAGES, indirect=True)
@pytest.mark.parametrize("page", [PAGE, pytest.param(None, marks=[pytest.mark.whole, pytest.mark.slow])])
def test_list_of_more_than_a_page(storage: S3Storage, page: int | None) -> None:
    """On pages that the client shortens, and in `make test-all` on those of 1,000 names that the server makes."""
    asked = 0

    def shorten(params: dict[str, object], **_: object) -> None:
        nonlocal asked
        asked += 1
        if page is not None:
            params["MaxKeys"] = page

    storage.client.meta.events.register("provide-client-params.s3.ListObjectsV2", shorten)
    expected = [f"many/{number:06d}" for number in range(3 * page if page is not None else MANY)]
    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(lambda name: put(storage, name), expected))
    assert names(storage, "many/") == expected
    assert asked > 1
    middle = len(expected) // 2
    assert names(storage, "many/", after=expected[middle]) == expected[middle + 1 :]
