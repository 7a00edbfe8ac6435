"""Particulars of S3: signed URLs and their fallback, uploads in one part or several, lost answers, probing."""

from __future__ import annotations

import hashlib
import logging
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from tests.doubles.manual_clock import ManualClock
from tests.servers.endpoint import S3Endpoint
from tierfs.base.bytes.checksum import Buffer
from tierfs.base.options.config import ColdSettings
from tierfs.base.system.prometheus import Metrics
from tierfs.base.words.errors import AlreadyExists, Conflict, DataLoss, PermissionDenied, Unavailable
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.probe import probe
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import UNPROBED, S3Storage
from tierfs.engine.chunkstore.s3.upload import MAX_PARTS, PART_BYTES, _part_bytes

Bucket = tuple[S3Endpoint, str]

LARGE = 20 * MIB
OWN = {"attempt": "own"}


class Bench:
    """A storage whose client can be interfered with."""

    def __init__(self, bucket: Bucket) -> None:
        self.endpoint, self.bucket = bucket
        self.clock = ManualClock()
        self.metrics = Metrics()
        location = S3Location(self.bucket, "prefix", self.endpoint.endpoint_url, self.endpoint.region)
        self.storage = S3Storage(location, clock=self.clock, metrics=self.metrics)
        self.client: Any = self.storage.client

    def incomplete_uploads(self) -> list[Any]:
        """Return the uploads a sweep would find."""
        with closing(self.endpoint.client()) as client:
            return list(client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ()))

    def read(self, name: str = "object") -> bytes:
        buffer = bytearray(5)
        self.storage.read_into(name, 0, memoryview(buffer))
        return bytes(buffer)


@pytest.fixture
def moto(moto_bucket: Bucket) -> Iterator[Bench]:
    bench = Bench(moto_bucket)
    with closing(bench.storage):
        yield bench


@pytest.fixture
def ceph(rgw_bucket: Bucket) -> Iterator[Bench]:
    bench = Bench(rgw_bucket)
    with closing(bench.storage):
        yield bench


def count_calls(bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: str) -> list[str]:
    calls: list[str] = []
    original = getattr(bench.client, verb)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(verb)
        return original(*args, **kwargs)

    monkeypatch.setattr(bench.client, verb, counted)
    return calls


def test_a_url_serves_many_reads_until_it_ages(moto: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    moto.storage.put("object", BufferSource(b"bytes"))
    signed = count_calls(moto, monkeypatch, "generate_presigned_url")
    got = count_calls(moto, monkeypatch, "get_object")
    for _ in range(3):
        assert moto.read() == b"bytes"
    moto.clock.advance(599)
    moto.read()
    assert len(signed) == 1
    moto.clock.advance(2)
    moto.read()
    assert len(signed) == 2
    assert got == []


def test_refused_urls_fall_back_and_are_given_up(
    ceph: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tierfs")
    ceph.storage.put("object", BufferSource(b"bytes"))
    sign = ceph.client.generate_presigned_url
    monkeypatch.setattr(ceph.client, "generate_presigned_url", lambda *a, **k: sign(*a, **k)[:-4] + "0000")
    signed = count_calls(ceph, monkeypatch, "generate_presigned_url")
    for _ in range(5):
        assert ceph.read() == b"bytes"
    assert len(signed) == 3
    assert ceph.storage.range_url("object") is None, "nor does the loop get one"
    assert b"tierfs_storage_presigned_fallbacks_total 3.0" in ceph.metrics.exposition()
    assert caplog.messages == [f"{ceph.endpoint.endpoint_url} refuses presigned URLs: reading with get_object"]


def test_connections_are_reused_after_errors(moto: Bench) -> None:
    settings = ColdSettings(connections=1)
    with closing(S3Storage(moto.storage.location, settings)) as storage:
        storage.put("object", BufferSource(bytes(3 * MIB)))
        for _ in range(3):
            with pytest.raises(DataLoss):
                storage.read_into("object", 0, memoryview(bytearray(5)), if_match="other")
            with pytest.raises(DataLoss):
                storage.read_into("object", 4 * MIB, memoryview(bytearray(5)))
        storage.read_into("object", 0, memoryview(bytearray(3 * MIB)))


def test_parts_are_bounded_in_memory(moto: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part counts from the read of its bytes to the answer of the server."""
    lock, seen = threading.Lock(), [0, 0]

    class Counting(BufferSource):
        def read(self, offset: int, length_bytes: int) -> Buffer:
            with lock:
                seen[0] += 1
                seen[1] = max(seen)
            return super().read(offset, length_bytes)

    settings = ColdSettings(parts_in_parallel=2)
    with closing(S3Storage(moto.storage.location, settings)) as storage:
        client: Any = storage.client
        original = client.upload_part

        def upload_part(**request: Any) -> Any:
            answer = original(**request)
            with lock:
                seen[0] -= 1
            return answer

        monkeypatch.setattr(client, "upload_part", upload_part)
        storage.put("object", Counting(bytes(6 * PART_BYTES)))
    assert seen == [0, 2]


@pytest.mark.parametrize("size", [5, LARGE])
@pytest.mark.parametrize("verb", ["put_object", "complete_multipart_upload", "head_object"])
def test_answer_lost_after_the_object_was_stored(
    moto: Bench, monkeypatch: pytest.MonkeyPatch, size: int, verb: str
) -> None:
    """The retry meets its own object, knows it by its attempt id, and leaves nothing behind but itself."""
    lost: list[str] = []
    original = getattr(moto.client, verb)

    def lose_first(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs) if verb != "head_object" else None
        if not lost:
            lost.append(verb)
            raise ReadTimeoutError(endpoint_url="http://host/?X-Amz-Signature=secret")
        return answer or original(*args, **kwargs)

    monkeypatch.setattr(moto.client, verb, lose_first)
    storage = ResilientStorage(moto.storage, attempts=3)
    data = bytes(size)
    stored = storage.put("object", BufferSource(data), metadata=OWN)
    assert (stored.length_bytes, stored.metadata) == (size, OWN)
    assert [found.name for found in storage.list("")] == ["object"]
    assert moto.incomplete_uploads() == []


def conflicting(bench: Bench, monkeypatch: pytest.MonkeyPatch, verb: str, *, lands: Callable[[], object]) -> None:
    """The first such request meets one of the same name in flight, which `lands` afterwards."""
    original = getattr(bench.client, verb)
    answers = iter([409])

    def answer(**request: Any) -> Any:
        if next(answers, None) is None:
            return original(**request)
        lands()
        raise ClientError(
            {
                "Error": {"Code": "ConditionalRequestConflict"},
                "ResponseMetadata": {"HTTPStatusCode": 409},  # type: ignore[typeddict-item]
            },
            verb,
        )

    monkeypatch.setattr(bench.client, verb, answer)


@pytest.mark.parametrize(("size", "verb"), [(5, "put_object"), (LARGE, "complete_multipart_upload")])
def test_a_put_in_flight_that_came_to_nothing_is_repeated(
    moto: Bench, monkeypatch: pytest.MonkeyPatch, size: int, verb: str
) -> None:
    conflicting(moto, monkeypatch, verb, lands=lambda: None)
    with pytest.raises(Unavailable, match="another request"):
        moto.storage.put("object", BufferSource(bytes(size)), metadata=OWN)
    conflicting(moto, monkeypatch, verb, lands=lambda: None)
    storage = ResilientStorage(moto.storage, attempts=3)
    assert storage.put("object", BufferSource(bytes(size)), metadata=OWN).metadata == OWN
    assert moto.incomplete_uploads() == []


@pytest.mark.parametrize("own", [True, False])
def test_a_put_in_flight_that_landed_is_told_by_its_attempt(
    moto: Bench, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    put = moto.client.put_object
    key = moto.storage.location.key("object")
    attempt = OWN if own else {"attempt": "other"}
    conflicting(
        moto,
        monkeypatch,
        "put_object",
        lands=lambda: put(Bucket=moto.bucket, Key=key, Body=b"bytes", Metadata=attempt),
    )
    if own:
        assert moto.storage.put("object", BufferSource(b"bytes"), metadata=OWN).metadata == OWN
    else:
        with pytest.raises(AlreadyExists):
            moto.storage.put("object", BufferSource(b"bytes"), metadata=OWN)


def test_ambiguous_completion_is_not_aborted(moto: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def timeout(**_: Any) -> Any:
        raise ReadTimeoutError(endpoint_url="http://host/?X-Amz-Signature=secret")

    monkeypatch.setattr(moto.client, "complete_multipart_upload", timeout)
    with pytest.raises(Unavailable) as raised:
        moto.storage.put("object", BufferSource(bytes(LARGE)))
    assert "secret" not in str(raised.value)
    assert len(moto.incomplete_uploads()) == 1


def test_server_that_stores_other_bytes_is_found_out(moto: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    original = moto.client.upload_part
    other = '"' + hashlib.md5(b"other").hexdigest() + '"'
    monkeypatch.setattr(moto.client, "upload_part", lambda **request: {**original(**request), "ETag": other})
    with pytest.raises(DataLoss, match="other bytes than were sent"):
        moto.storage.put("object", BufferSource(bytes(LARGE)))
    assert moto.incomplete_uploads() == []


@pytest.mark.parametrize("verifies_crc32c", [False, True])
def test_an_answer_that_proves_a_small_object_saves_a_request(
    ceph: Bench, monkeypatch: pytest.MonkeyPatch, verifies_crc32c: bool
) -> None:
    """RGW answers the MD5 always, and a CRC32C where it knows it: what it does not repeat is asked for."""
    heads = count_calls(ceph, monkeypatch, "head_object")
    abilities = replace(UNPROBED, create_only_put=True, verifies_crc32c=verifies_crc32c)
    monkeypatch.setattr(ceph.storage._uploader, "_abilities", abilities)
    put = ceph.client.put_object
    answers: list[Any] = []

    def kept(**request: Any) -> Any:
        answers.append(put(**request))
        return answers[-1]

    monkeypatch.setattr(ceph.client, "put_object", kept)
    stored = ceph.storage.put("first", BufferSource(b"bytes"), metadata=OWN)
    is_told = not verifies_crc32c or "ChecksumCRC32C" in answers[-1]
    assert len(heads) == (0 if is_told else 1)
    assert ceph.storage.stat("first") == stored
    heads.clear()
    monkeypatch.setattr(ceph.client, "put_object", lambda **request: put(**request) and {"ETag": '"opaque"'})
    with pytest.raises(Conflict):  # what HEAD answers decides
        ceph.storage.put("second", BufferSource(b"bytes"), metadata=OWN)
    assert len(heads) == 1


@pytest.mark.parametrize("create_only", [False, True])
def test_an_object_that_others_may_replace_is_looked_at_after_the_upload(
    moto: Bench, monkeypatch: pytest.MonkeyPatch, create_only: bool
) -> None:
    """Also where the server ignores If-None-Match: the loser of two uploads notices."""
    monkeypatch.setattr(moto.storage._uploader, "_abilities", replace(UNPROBED, create_only_put=not create_only))
    heads = count_calls(moto, monkeypatch, "head_object")
    put = moto.client.put_object

    def replaced(**request: Any) -> Any:
        answer = put(**request)
        heads.clear()
        put(**{**request, "Body": b"other", "ContentMD5": md5_of(b"other")})
        return answer

    monkeypatch.setattr(moto.client, "put_object", replaced)
    with pytest.raises(Conflict):
        moto.storage.put("object", BufferSource(b"bytes"), create_only=create_only)
    assert len(heads) == 1


def md5_of(data: bytes) -> str:
    """Return what ContentMD5 takes."""
    return b64encode(hashlib.md5(data).digest()).decode()


def test_same_attempt_is_idempotent(moto: Bench) -> None:
    stored = moto.storage.put("object", BufferSource(b"bytes"), metadata=OWN)
    assert moto.storage.put("object", BufferSource(b"bytes"), metadata=OWN) == stored
    with pytest.raises(AlreadyExists):
        moto.storage.put("object", BufferSource(b"more bytes"), metadata=OWN)


@pytest.mark.parametrize("size", [1, PART_BYTES, PART_BYTES * MAX_PARTS, PART_BYTES * MAX_PARTS + 1, 5 * 1024**4])
def test_part_sizes_stay_within_the_limits(size: int) -> None:
    part = _part_bytes(size)
    assert part % MIB == 0
    assert part >= PART_BYTES
    assert -(-size // part) <= MAX_PARTS


def test_a_location_sees_only_its_prefix(moto: Bench) -> None:
    moto.storage.put("object", BufferSource(b"bytes"))
    location = S3Location(moto.bucket, "", moto.endpoint.endpoint_url, moto.endpoint.region)
    with closing(S3Storage(location)) as whole:
        whole.put("prefix-2/object", BufferSource(b"other"))
        assert [found.name for found in whole.list("")] == ["prefix-2/object", "prefix/object"]
    assert [found.name for found in moto.storage.list("")] == ["object"]


def test_probe_tells_what_a_storage_can(ceph: Bench, tmp_path: Path) -> None:
    expected = Abilities(create_only_put=True, create_only_multipart=False, verifies_crc32c=False)
    assert probe(ceph.storage) == expected
    assert ceph.incomplete_uploads() == []
    with closing(DirectoryStorage.create(tmp_path / "cold")) as directory:
        assert probe(directory) == probe(MemoryStorage()) == Abilities()
        for storage in (ceph.storage, directory):
            assert list(storage.list("")) == []


UNKNOWN: Any = {"Error": {"Code": "NotImplemented"}, "ResponseMetadata": {"HTTPStatusCode": 501}}
FORBIDDEN_METHOD: Any = {"Error": {"Code": "MethodNotAllowed"}, "ResponseMetadata": {"HTTPStatusCode": 405}}
NAMES = ["a", "journal/00000000000000000001", "ü <&>\"'", "missing"]


@pytest.mark.parametrize("server", ["rgw", "versity", pytest.param("moto", marks=pytest.mark.whole)])
def test_many_objects_go_with_one_request(server: str, request: pytest.FixtureRequest) -> None:
    bench = Bench(request.getfixturevalue(f"{server}_bucket"))
    with closing(bench.storage) as storage:
        for name in [*NAMES[:-1], "other"]:
            storage.put(name, BufferSource(b"bytes"))
        for _ in range(2):
            assert storage.delete_many(NAMES)
        assert [found.name for found in storage.list("")] == ["other"]


def answers(moto: Bench, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | ClientError) -> None:
    def delete_objects(**_: object) -> dict[str, Any]:
        if isinstance(answer, ClientError):
            raise answer
        return answer

    monkeypatch.setattr(moto.client, "delete_objects", delete_objects)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"Deleted": [{"Key": "prefix/a"}]},
        ClientError(
            {"Error": {"Code": "NotImplemented"}, "ResponseMetadata": {"HTTPStatusCode": 501}}, "DeleteObjects"
        ),
        ClientError(
            {"Error": {"Code": "MethodNotAllowed"}, "ResponseMetadata": {"HTTPStatusCode": 405}}, "DeleteObjects"
        ),
    ],
)
def test_a_server_that_does_not_confirm_each_name_is_not_believed(
    moto: Bench, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    answers(moto, monkeypatch, answer)
    assert not moto.storage.delete_many(["a", "b"])


@pytest.mark.parametrize(
    ("codes", "error"), [(["AccessDenied", "SlowDown"], Unavailable), (["NoSuchKey", "AccessDenied"], PermissionDenied)]
)
def test_an_object_that_stays_is_an_error(
    moto: Bench, monkeypatch: pytest.MonkeyPatch, codes: list[str], error: type[Exception]
) -> None:
    errors = [{"Key": f"prefix/{name}", "Code": code} for name, code in zip("ab", codes, strict=True)]
    answers(moto, monkeypatch, {"Deleted": [{"Key": "prefix/c"}], "Errors": errors})
    with pytest.raises(error):
        moto.storage.delete_many(["a", "b", "c"])


def test_delete_sweeps_unfinished_uploads_of_the_name(ceph: Bench) -> None:
    keys = ["prefix/a", "prefix/a", "prefix/ab", "prefix/segments/a", "prefix/segments/a", "q/segments/a"]
    for key in keys:
        ceph.client.create_multipart_upload(Bucket=ceph.bucket, Key=key)
    ceph.storage.delete("a")
    assert sorted(upload["Key"] for upload in ceph.incomplete_uploads()) == keys[2:]
    pending = list(ceph.storage.uploads("segments/"))
    assert [upload.name for upload in pending] == ["segments/a", "segments/a"]
    assert all(upload.started_ms > 0 for upload in pending)
    for _ in range(2):
        ceph.storage.abort_upload(pending[0])
    assert [upload.upload_id for upload in ceph.storage.uploads("segments/")] == [pending[1].upload_id]
    assert sorted(upload["Key"] for upload in ceph.incomplete_uploads()) == [keys[2], *keys[4:]]
