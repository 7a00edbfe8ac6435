"""Dead uploads: unfinished multipart uploads and jobs that were never committed, found and ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.commands import tierfs
from tests.conftest import Bucket
from tests.stores import LOCATION, TestStore, open_test_store
from tierfs.base.words.types import AttemptId, SegmentId
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource, PendingUpload
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage
from tierfs.engine.metadata.records import IntentRecord
from tierfs.engine.metadata.tables import INTENTS

HOUR_S = 3600


class UploadingStorage(MemoryStorage):
    """A storage with unfinished uploads."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: list[PendingUpload] = []

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        return iter([upload for upload in self.pending if upload.name.startswith(prefix)])

    def abort_upload(self, upload: PendingUpload) -> None:
        self.pending = [one for one in self.pending if one.upload_id != upload.upload_id]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TestStore]:
    with open_test_store(tmp_path / "store", cold=UploadingStorage()) as opened:
        opened.cold._clock = opened.clock  # type: ignore[attr-defined]
        yield opened


def begin(store: TestStore, name: str, number: int = 1) -> None:
    assert isinstance(store.cold, UploadingStorage)
    store.cold.pending.append(PendingUpload(name, f"id{number}", store.clock.now_ms()))


def chunk_name(epoch: int = 1, attempt: str = "a" * 32) -> str:
    return f"segments/s/1/chunk-{0:020d}-{4:020d}-e{epoch}-{attempt}"


UPLOADED = [
    f"uploads/{job * 32}/{0:08d}-{'c' * 32}-{start:020d}-{start + 1:020d}-e1-c00000000"
    for job, start in (("1", 0), ("2", 0), ("2", 1))
]


def dead(store: TestStore) -> set[str]:
    return {one.name for one in store.cold_work().dead_uploads(grace_s=HOUR_S)}


def test_an_old_upload_without_intent_is_dead_and_is_aborted(store: TestStore) -> None:
    begin(store, chunk_name())
    assert dead(store) == set(), "the young are left alone"
    store.clock.advance(HOUR_S)
    assert dead(store) == {chunk_name()}
    assert store.cold_work().collect_all(grace_s=HOUR_S).aborted == 1
    assert list(store.cold.uploads("")) == []


def test_an_upload_with_an_intent_is_alive(store: TestStore) -> None:
    attempt = AttemptId("a" * 32)
    with store.metadata.write() as txn:
        intent = IntentRecord(
            attempt=attempt,
            location_id=LOCATION,
            name=chunk_name(),
            segment_id=SegmentId(1),
            start_offset=0,
            end_offset=4,
        )
        txn.put(INTENTS, attempt.encode(), intent)
    begin(store, chunk_name())
    store.clock.advance(HOUR_S)
    assert dead(store) == set()


def test_what_is_not_ours_is_left_alone(store: TestStore) -> None:
    for number, name in enumerate(("other/file", chunk_name(epoch=2), "segments/not-a-chunk", "segments")):
        begin(store, name, number)
    store.clock.advance(HOUR_S)
    assert dead(store) == set()


def test_a_job_is_dead_when_nothing_was_added_for_the_grace_period(store: TestStore) -> None:
    store.cold.put(UPLOADED[0], BufferSource(b"1"))
    store.cold.put(UPLOADED[1], BufferSource(b"2"))
    store.clock.advance(HOUR_S)
    store.cold.put(UPLOADED[2], BufferSource(b"3"))
    store.cold.put(f"uploads/{'1' * 32}/precious", BufferSource(b"4"))
    store.clock.advance(HOUR_S)
    store.cold.put(UPLOADED[2], BufferSource(b"3"), create_only=False)
    assert dead(store) == {UPLOADED[0]}, "what no task would upload is no job's"
    assert store.cold_work().collect_all(grace_s=HOUR_S).deleted == 1
    assert [found.name for found in store.cold.list("uploads/")] == [f"uploads/{'1' * 32}/precious", *UPLOADED[1:]]


def test_gc_lists_and_aborts_them_in_a_bucket(moto_bucket: Bucket, tmp_path: Path) -> None:
    endpoint, bucket = moto_bucket
    path = tmp_path / "store"
    tierfs("init", "--bucket", f"s3://{bucket}/p", "--endpoint-url", endpoint.endpoint_url, store=path)
    with closing(endpoint.client()) as client:
        client.create_multipart_upload(Bucket=bucket, Key=f"p/{chunk_name()}")
        client.create_multipart_upload(Bucket=bucket, Key=f"q/{chunk_name()}")
        listed = tierfs("gc", "--grace", "0s", "--json", store=path)
        assert (listed.json["kind"], listed.json["name"]) == ("upload", chunk_name())
        assert "1 dead upload" in tierfs("gc", "--grace", "0s", store=path).out
        assert tierfs("gc", "--grace", "0s", "--delete", "--json", store=path).json["aborted"] == 1
        left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
        assert [upload["Key"] for upload in left] == [f"q/{chunk_name()}"]
    location = S3Location(bucket, "p", endpoint_url=endpoint.endpoint_url, region=endpoint.region)
    with closing(S3Storage(location)) as storage:
        assert list(storage.uploads("")) == []
