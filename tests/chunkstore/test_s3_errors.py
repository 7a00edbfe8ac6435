"""Messages to the user when S3 cannot be used: one line, with failure and place, never a credential."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from tests.servers.endpoint import SECRET_KEY, S3Endpoint
from tests.servers.rgw import free_ports
from tierfs.chunkstore.protocol import BufferSource
from tierfs.chunkstore.s3.errors import error_of_answer
from tierfs.chunkstore.s3.location import S3Location
from tierfs.chunkstore.s3.storage import S3Storage
from tierfs.config import ColdSettings
from tierfs.errors import (
    AlreadyExists,
    DataLoss,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFull,
    TierfsError,
    Unavailable,
    WrongColdTier,
)

Bucket = tuple[S3Endpoint, str]

CALLS: dict[str, Callable[[S3Storage], object]] = {
    "check_bucket": lambda storage: storage.check_bucket(),
    "put": lambda storage: storage.put("object", BufferSource(b"bytes")),
    "read": lambda storage: storage.read_into("object", 0, memoryview(bytearray(5))),
    "list": lambda storage: list(storage.list("")),
}


@pytest.fixture(params=["moto", pytest.param("rgw", marks=pytest.mark.s3)])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    found: Bucket = request.getfixturevalue(f"{request.param}_bucket")
    return found


def location(server: Bucket, **changes: str) -> S3Location:
    endpoint, name = server
    return replace(S3Location(name, "", endpoint.endpoint_url, endpoint.region), **changes)  # type: ignore[arg-type]


def refused(where: S3Location, call: str) -> TierfsError:
    """The error of one call, checked to be fit for a terminal and a log."""
    storage = S3Storage(where, ColdSettings(connect_timeout_s=1))
    with closing(storage), pytest.raises(TierfsError) as raised:
        CALLS[call](storage)
    text = f"{raised.value} {raised.value.remedy} {''.join(traceback.format_exception(raised.value))}"
    assert "\n" not in str(raised.value)
    assert SECRET_KEY not in text
    assert "Signature=" not in text
    return raised.value


@pytest.mark.parametrize("call", CALLS)
def test_wrong_bucket(bucket: Bucket, call: str) -> None:
    error = refused(location(bucket, bucket="no-such-bucket"), call)
    assert type(error) is (WrongColdTier if call == "read" else NotFound), "a read waits for the bucket"
    assert str(error) == f"bucket no-such-bucket does not exist at {bucket[0].endpoint_url}"
    assert error.remedy == "create the bucket, or check its name and the endpoint URL (cold.endpoint_url)"


@pytest.mark.parametrize("call", CALLS)
def test_wrong_access_key(rgw_bucket: Bucket, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    error = refused(location(rgw_bucket), call)
    assert isinstance(error, PermissionDenied)
    assert str(error) == f"credentials refused by {rgw_bucket[0].endpoint_url} (InvalidAccessKeyId)"
    assert error.remedy == "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (cold.profile)"


@pytest.mark.parametrize("call", CALLS)
def test_wrong_secret_key(rgw_bucket: Bucket, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guessed")
    error = refused(location(rgw_bucket), call)
    assert isinstance(error, PermissionDenied)
    assert str(error) == f"credentials refused by {rgw_bucket[0].endpoint_url} (SignatureDoesNotMatch)"


@pytest.mark.parametrize("call", CALLS)
def test_no_credentials(moto_bucket: Bucket, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = refused(location(moto_bucket), call)
    assert isinstance(error, PermissionDenied)
    assert str(error) == f"no usable AWS credentials for {moto_bucket[0].endpoint_url}"
    assert error.remedy == "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (cold.profile)"


@pytest.mark.parametrize("call", CALLS)
def test_unreachable_endpoint(call: str) -> None:
    url = f"http://127.0.0.1:{free_ports(1)}"
    error = refused(S3Location("bucket", "", url), call)
    assert isinstance(error, Unavailable)
    assert str(error) == f"cannot reach {url}"
    assert error.remedy == "check the endpoint URL (cold.endpoint_url) and the network"


def test_unknown_profile(moto_bucket: Bucket) -> None:
    with pytest.raises(PermissionDenied, match=r"^the AWS profile nobody does not exist$"):
        S3Storage(location(moto_bucket, profile="nobody"))


@pytest.mark.parametrize("url", ["http://me:secret@host", "ftp://host", "host:9000", "http://", "http://h/?a=b"])
def test_endpoints_that_are_none(url: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        S3Location("bucket", "", url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("SlowDown", 503, Unavailable),
        ("InternalError", 500, Unavailable),
        ("", 502, Unavailable),
        ("OperationAborted", 409, Unavailable),
        ("BadDigest", 400, Unavailable),
        ("NoSuchUpload", 404, Unavailable),
        ("RequestTimeout", 400, Unavailable),
        ("QuotaExceeded", 403, StorageFull),
        ("507", 507, StorageFull),
        ("AccessDenied", 403, PermissionDenied),
        ("403", 403, PermissionDenied),
        ("ExpiredToken", 400, PermissionDenied),
        ("RequestTimeTooSkewed", 403, PermissionDenied),
        ("NoSuchKey", 404, NotFound),
        ("404", 404, NotFound),
        ("PreconditionFailed", 412, AlreadyExists),
        ("ConditionalRequestConflict", 409, AlreadyExists),
        ("InvalidRange", 416, DataLoss),
        ("PermanentRedirect", 301, InvalidRequest),
        ("NotImplemented", 501, InvalidRequest),
        ("MetadataTooLarge", 400, InvalidRequest),
    ],
)
def test_answers(code: str, status: int, error: type[TierfsError]) -> None:
    where = S3Location("bucket", "prefix", "http://host:1")
    found = error_of_answer(where, "write", "a\n\x1b[1mb", code, status)
    assert type(found) is error
    assert "\n" not in str(found)
    assert "\x1b" not in str(found)


@pytest.mark.parametrize("presigned", [True, False])
def test_signatures_are_never_logged(bucket: Bucket, presigned: bool, caplog: pytest.LogCaptureFixture) -> None:
    with closing(S3Storage(location(bucket), ColdSettings(presigned_reads=presigned))) as storage:
        storage.put("object", BufferSource(b"bytes"))
        caplog.set_level(logging.DEBUG)
        storage.read_into("object", 0, memoryview(bytearray(5)))
    assert "X-Amz-Signature" not in caplog.text
    assert "Signature=" not in caplog.text
    assert SECRET_KEY not in caplog.text
