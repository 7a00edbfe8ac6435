"""Messages to the user when an S3 server is not to be trusted: what is wrong, where, and what to do; not retried."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable
from contextlib import closing

import pytest
from botocore import exceptions as botocore
from urllib3 import exceptions as urllib3

from tests.reading.fetch.chaotic_http import serving
from tests.servers.certificates import EXPIRED_DAYS, LOOPBACK, OTHER, VALID_DAYS, Authority
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource
from tierfs.chunkstore.retry import RetryingStorage
from tierfs.chunkstore.s3.errors import map_s3_errors
from tierfs.chunkstore.s3.location import S3Location
from tierfs.chunkstore.s3.storage import S3Storage
from tierfs.config import ColdSettings
from tierfs.errors import InvalidRequest, TierfsError, Unavailable

CALLS: dict[str, Callable[[RetryingStorage], object]] = {
    "put": lambda storage: storage.put("object", BufferSource(b"bytes")),
    "list": lambda storage: list(storage.list("")),
    "read": lambda storage: storage.read_into("object", 0, memoryview(bytearray(5))),
    "read of a version": lambda storage: storage.read_into("object", 0, memoryview(bytearray(5)), if_match="e"),
}


def never(_: float) -> None:
    raise AssertionError("a pause, for the next try")


def refused(origin: str, call: str) -> TierfsError:
    """The error of one call that would be repeated if it could pass."""
    with closing(S3Storage(S3Location("bucket", endpoint_url=origin), ColdSettings(presigned_reads=True))) as storage:
        patient = RetryingStorage(storage, attempts=5, base_delay_s=1, max_delay_s=1, sleep=never)
        with pytest.raises(TierfsError) as raised:
            CALLS[call](patient)
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("subjects", "days", "trusted", "problem", "remedy"),
    [
        (LOOPBACK, EXPIRED_DAYS, True, "has expired", "renew it there, or set this machine's clock"),
        (OTHER, VALID_DAYS, True, "is for other names", "name the server in the endpoint URL as it does"),
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
        error = refused(server.origin, call)
        assert type(error) is InvalidRequest
        assert str(error) == f"the certificate of {server.origin} {problem}"
        assert error.remedy == remedy
        assert server.answers == 0


@pytest.mark.parametrize("call", CALLS)
def test_a_server_without_tls_is_named(call: str) -> None:
    with serving(MemoryStorage(), random.Random(1)) as server:
        origin = server.origin.replace("http:", "https:")
        error = refused(origin, call)
    assert type(error) is InvalidRequest
    assert f"{origin} does not speak TLS 1.2 or newer" in str(error)
    assert error.remedy == "check the endpoint URL: is it http:// there?"


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


def test_a_bundle_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/file")
    with pytest.raises(InvalidRequest, match="/no/such/file: no certificates can be read from it"):
        S3Storage(S3Location("bucket", endpoint_url="https://s3.example"))
