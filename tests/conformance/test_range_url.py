"""range_url on every provider that has one, and on every wrapper: a URL that any HTTP client may use, or None."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import urllib3

from tests.conformance.storages import PREFIX, STORAGES, opened, wrapped
from tests.doubles.manual_clock import ManualClock
from tests.servers.endpoint import ACCESS_KEY, SECRET_KEY, S3Endpoint
from tierfs.base.options.config import ColdSettings
from tierfs.base.words.errors import Unavailable
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, RangeUrl, RangeUrls
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage

Bucket = tuple[S3Endpoint, str]

DATA = random.Random(8).randbytes(100_000)
NAME = "a b/ü+&=?%/object"
"""A name that needs encoding."""

START, LENGTH = 12_345, 6_789
OF_S3 = ("moto", "rgw", "versity")
"""The kinds that have URLs."""

LAST_USED_S = 599
"""A URL is used for ten minutes."""

MINUTE_S = 60
REFUSALS = 3
"""After so many in a row, signed URLs are given up."""

NOBODY = "127.0.0.1:1"


@pytest.fixture(params=[*STORAGES, "moto-get_object"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def storage(kind: str, request: pytest.FixtureRequest) -> Iterator[ChunkStorage]:
    with opened(kind, request) as storage:
        storage.put(NAME, BufferSource(DATA))
        yield storage


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["rgw", "rgw_tls"])
def s3(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[S3Storage]:
    with closing(s3_storage(request.getfixturevalue(f"{request.param}_bucket"), clock)) as storage:
        storage.put(NAME, BufferSource(DATA))
        yield storage


def s3_storage(bucket: Bucket, clock: ManualClock) -> S3Storage:
    endpoint, name = bucket
    return S3Storage(S3Location(name, PREFIX, endpoint.endpoint_url, endpoint.region), clock=clock)


def read(storage: ChunkStorage, name: str = NAME) -> None:
    storage.read_into(name, 0, memoryview(bytearray(1)))


def served(url: RangeUrl, start: int, length: int) -> tuple[int, str, bytes]:
    """Status, etag and body for a range, fetched by a client that knows nothing of S3."""
    with urllib3.PoolManager(ssl_context=url.tls and url.tls.context) as pool:
        span = {"Range": f"bytes={start}-{start + length - 1}"}
        answer = pool.request("GET", url.origin + url.target, headers=span, retries=False)
        return answer.status, answer.headers.get("ETag", "").strip('"'), answer.data


def test_a_url_is_at_hand_at_once_where_there_is_a_server(storage: ChunkStorage, kind: str) -> None:
    """For every name, and before any read: the server is not asked whether there is such an object."""
    assert isinstance(storage, RangeUrls) == (kind == "wrapped" or isinstance(storage, S3Storage))
    if not isinstance(storage, RangeUrls):
        return
    for name in (NAME, "other", "a b"):
        assert (storage.range_url(name) is not None) == (kind in OF_S3), name


def test_a_closed_storage_has_no_url(storage: ChunkStorage) -> None:
    read(storage)
    storage.close()
    assert not isinstance(storage, RangeUrls) or storage.range_url(NAME) is None


def test_a_url_serves_ranges_of_any_object_and_shows_nothing_that_lets_anybody_in(s3: S3Storage) -> None:
    s3.put("other", BufferSource(DATA[::-1]))
    read(s3)
    url, other, missing = s3.range_url(NAME), s3.range_url("other"), s3.range_url("missing")
    assert url is not None
    assert other is not None
    assert missing is not None
    etag = s3.stat(NAME).etag
    assert served(url, START, LENGTH) == (206, etag, DATA[START : START + LENGTH])
    assert served(url, len(DATA), 1)[0] == 416
    assert served(other, START, LENGTH)[2] == DATA[::-1][START : START + LENGTH], "it was not read before"
    assert served(missing, START, LENGTH)[0] == 404
    assert "Signature" in url.target
    for shown in (repr(url), str(url), f"{url}", repr([url])):
        assert "Signature" not in shown
        assert url.origin in shown


@pytest.mark.parametrize(("lasts_s", "signs"), [(5 * MINUTE_S, False), (120 * MINUTE_S, True)])
def test_nothing_is_signed_with_credentials_that_would_be_renewed_first(
    moto_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasts_s: int, signs: bool
) -> None:
    """Renewing them runs a program here and asks a server elsewhere, which range_url must not wait for."""
    expires = datetime.now(UTC) + timedelta(seconds=lasts_s)
    keys = {"Version": 1, "AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Expiration": expires.isoformat()}
    (tmp_path / "keys").write_text(json.dumps(keys))
    program = f"sh -c 'echo >> {tmp_path}/runs; cat {tmp_path}/keys'"
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with closing(s3_storage(moto_bucket, ManualClock())) as storage:
        storage.put(NAME, BufferSource(DATA))
        read(storage)
        runs = (tmp_path / "runs").read_text()
        assert storage.range_url(NAME) is not None
        assert (storage.range_url("other") is not None) == signs
        assert (tmp_path / "runs").read_text() == runs


def test_wrappers_pass_a_url_on_at_once(s3: S3Storage) -> None:
    storage = wrapped(s3)
    assert storage.range_url(NAME) == s3.range_url(NAME) is not None
    during: list[RangeUrl | None] = []
    storage.read_into(NAME, 0, memoryview(bytearray(1)), progress=lambda _: during.append(storage.range_url(NAME)))
    assert during == [s3.range_url(NAME)]
    assert during != [None]


@pytest.mark.parametrize(
    ("scheme", "proxied", "presigned", "expected"),
    [
        ("http", False, True, RangeUrl),
        ("https", False, True, RangeUrl),
        ("https", True, True, type(None)),
        ("http", True, True, type(None)),
        ("http", False, False, type(None)),
    ],
)
def test_there_is_no_url_through_a_proxy_or_without_signed_urls(
    monkeypatch: pytest.MonkeyPatch, scheme: str, proxied: bool, presigned: bool, expected: type
) -> None:
    """Nobody answers there; the URL was signed for the read all the same."""
    if proxied:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://{NOBODY}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
    location = S3Location("bucket", "", f"{scheme}://{NOBODY}", "us-east-1")
    with closing(S3Storage(location, ColdSettings(presigned_reads=presigned))) as storage:
        with pytest.raises(Unavailable):
            read(storage)
        url = storage.range_url(NAME)
        assert isinstance(url, expected)
        assert url is None or (url.tls is not None) == (scheme == "https")


def test_a_list_of_hosts_without_a_proxy_is_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is not among them, and there is no proxy for it all the same."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "elsewhere.example")
    with closing(S3Storage(S3Location("bucket", "", f"http://{NOBODY}", "us-east-1"))) as storage:
        assert isinstance(storage.range_url(NAME), RangeUrl)
