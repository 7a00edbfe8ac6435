"""Messages to the user when S3 cannot be used or trusted: one line, with failure and place, never a credential."""

from __future__ import annotations

import logging
import random
import ssl
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from botocore import exceptions as botocore
from urllib3 import exceptions as urllib3

from tests.reading.fetch.chaos import serving
from tests.servers.certificates import EXPIRED_DAYS, LOOPBACK, OTHER, VALID_DAYS, Authority
from tests.servers.endpoint import SECRET_KEY, S3Endpoint
from tests.servers.rgw import free_ports
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import (
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
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.protocol import BufferSource
from tierfs.engine.chunkstore.resilient import ResilientStorage
from tierfs.engine.chunkstore.s3.errors import error_of_answer, map_s3_errors
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage

Bucket = tuple[S3Endpoint, str]

CALLS: dict[str, Callable[[S3Storage], object]] = {
    "put": lambda storage: storage.put("object", BufferSource(b"bytes")),
    "read": lambda storage: storage.read_into("object", 0, memoryview(bytearray(5))),
    "list": lambda storage: list(storage.list("")),
}


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
def test_a_bucket_that_does_not_exist_is_named(rgw_bucket: Bucket, call: str) -> None:
    error = refused(location(rgw_bucket, bucket="no-such-bucket"), call)
    assert type(error) is (WrongColdTier if call == "read" else NotFound), "a read waits for the bucket"
    assert str(error) == f"bucket no-such-bucket does not exist at {rgw_bucket[0].endpoint_url}"
    assert error.remedy == "create the bucket, or check its name and the endpoint URL (cold.endpoint_url)"


@pytest.mark.parametrize(
    ("server", "changed", "message"),
    [
        ("rgw", {"AWS_ACCESS_KEY_ID": "nobody"}, r"credentials refused by {url} (InvalidAccessKeyId)"),
        ("rgw", {"AWS_SECRET_ACCESS_KEY": "guessed"}, r"credentials refused by {url} (SignatureDoesNotMatch)"),
        ("moto", dict.fromkeys(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]), "no usable AWS credentials for {url}"),
    ],
    ids=["access key", "secret key", "none"],
)
@pytest.mark.parametrize("call", CALLS)
def test_credentials_that_are_wrong_are_told(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    changed: dict[str, str | None],
    message: str,
    call: str,
) -> None:
    bucket: Bucket = request.getfixturevalue(f"{server}_bucket")
    for name, value in changed.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    error = refused(location(bucket), call)
    assert isinstance(error, PermissionDenied)
    assert str(error) == message.format(url=bucket[0].endpoint_url)
    verb = "check" if server == "rgw" else "set"
    assert error.remedy == f"{verb} AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (cold.profile)"


@pytest.mark.parametrize("call", CALLS)
def test_an_endpoint_that_cannot_be_reached_is_named(call: str) -> None:
    url = f"http://127.0.0.1:{free_ports(1)}"
    error = refused(S3Location("bucket", "", url), call)
    assert isinstance(error, Unavailable)
    assert str(error) == f"cannot reach {url}"
    assert error.remedy == "check the endpoint URL (cold.endpoint_url) and the network"


def test_a_profile_that_does_not_exist_is_named(moto_bucket: Bucket) -> None:
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
def test_an_answer_is_an_error_of_its_type_in_printable_text(code: str, status: int, error: type[TierfsError]) -> None:
    where = S3Location("bucket", "prefix", "http://host:1")
    found = error_of_answer(where, "write", "a\n\x1b[1mb", code, status)
    assert type(found) is error
    assert "\n" not in str(found)
    assert "\x1b" not in str(found)


@pytest.mark.parametrize("presigned", [True, False])
def test_signatures_are_never_logged(rgw_bucket: Bucket, presigned: bool, caplog: pytest.LogCaptureFixture) -> None:
    with closing(S3Storage(location(rgw_bucket), ColdSettings(presigned_reads=presigned))) as storage:
        storage.put("object", BufferSource(b"bytes"))
        caplog.set_level(logging.DEBUG)
        storage.read_into("object", 0, memoryview(bytearray(5)))
    assert "X-Amz-Signature" not in caplog.text
    assert "Signature=" not in caplog.text
    assert SECRET_KEY not in caplog.text


ASKING: dict[str, Callable[[ResilientStorage], object]] = {
    "put": lambda storage: storage.put("object", BufferSource(b"bytes")),
    "list": lambda storage: list(storage.list("")),
    "read": lambda storage: storage.read_into("object", 0, memoryview(bytearray(5))),
    "read of a version": lambda storage: storage.read_into("object", 0, memoryview(bytearray(5)), if_match="e"),
}


def never(_: float) -> None:
    raise AssertionError("a pause, for the next try")


def distrusted(origin: str, call: str) -> TierfsError:
    """The error of one call that would be repeated if it could pass."""
    with closing(S3Storage(S3Location("bucket", endpoint_url=origin), ColdSettings(presigned_reads=True))) as storage:
        patient = ResilientStorage(storage, attempts=5, base_delay_s=1, max_delay_s=1, sleep=never)
        with pytest.raises(TierfsError) as raised:
            ASKING[call](patient)
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("call", ASKING)
@pytest.mark.parametrize(
    ("subjects", "days", "trusted", "problem", "remedy"),
    [
        (LOOPBACK, EXPIRED_DAYS, True, "has expired", "renew the certificate, or set this machine's clock"),
        (OTHER, VALID_DAYS, True, "is for other names", "use a name of the certificate in the endpoint URL"),
        (
            LOOPBACK,
            VALID_DAYS,
            False,
            "is signed by an authority that this machine does not trust",
            "set AWS_CA_BUNDLE to the file of its authority's certificate, in PEM",
        ),
    ],
)
def test_a_wrong_certificate_is_said_at_once(
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    subjects: tuple[str, ...],
    days: int,
    trusted: bool,
    problem: str,
    remedy: str,
) -> None:
    if trusted:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.certificate))
    with serving(MemoryStorage(), random.Random(1), authority.issue("s3", subjects, days).serving()) as server:
        error = distrusted(server.origin, call)
        assert type(error) is InvalidRequest
        assert str(error) == f"the certificate of {server.origin} {problem}"
        assert error.remedy == remedy
        assert server.answers == 0


def test_a_server_without_tls_is_named() -> None:
    with serving(MemoryStorage(), random.Random(1)) as server:
        origin = server.origin.replace("http:", "https:")
        error = distrusted(origin, "read of a version")
    assert type(error) is InvalidRequest
    assert f"{origin} does not speak TLS 1.2 or newer" in str(error)
    assert error.remedy == "check the endpoint URL: it may need http://"


@pytest.mark.parametrize("wrapped", ["plain", "urllib3", "botocore"])
def test_a_connection_that_broke_in_tls_may_be_tried_again(wrapped: str) -> None:
    """As when a server restarts: the fault is not the certificate's."""
    broke = ssl.SSLEOFError(8, "EOF occurred in violation of protocol")
    error = {
        "plain": broke,
        "urllib3": urllib3.SSLError(broke),
        "botocore": botocore.SSLError(endpoint_url="x", error=urllib3.SSLError(broke)),
    }[wrapped]
    location = S3Location("bucket", endpoint_url="https://s3.example")
    with pytest.raises(Unavailable, match=r"connection to https://s3\.example broke"), map_s3_errors(location, "read"):
        raise error
