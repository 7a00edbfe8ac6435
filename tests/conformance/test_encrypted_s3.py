"""S3 by HTTPS as it is reached in earnest: by address, by IPv6, and by the bucket's own name; never by urllib3."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

from tests.conftest import Bucket
from tests.servers.certificates import S3_DOMAIN
from tests.servers.endpoint import S3Endpoint
from tierfs.chunkstore.http.on_loop import LoopGets
from tierfs.chunkstore.protocol import BufferSource
from tierfs.chunkstore.s3.location import S3Location
from tierfs.chunkstore.s3.storage import S3Storage
from tierfs.chunkstore.s3.ways import SignedWay
from tierfs.config import Addressing, ColdSettings
from tierfs.types import MIB

DATA = random.Random(5).randbytes(3 * MIB)
START, LENGTH = 12_345, 2 * MIB
LISTED = Path("/proc/net/if_inet6")
IPV6_ADDRESSES = LISTED.read_text() if LISTED.exists() else ""


def names_on_loopback(patch: pytest.MonkeyPatch) -> None:
    """Let names below S3_DOMAIN be this machine's, which not every resolver believes."""
    resolve = socket.getaddrinfo

    def resolved(host: str, *arguments: object, **named: object) -> object:
        own = isinstance(host, str) and host.endswith(S3_DOMAIN)
        return resolve("127.0.0.1" if own else host, *arguments, **named)  # type: ignore[arg-type]

    patch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture(
    params=[
        "127.0.0.1",
        pytest.param("[::1]", marks=pytest.mark.skipif(" lo" not in IPV6_ADDRESSES, reason="no IPv6")),
        S3_DOMAIN,
    ]
)
def storage(
    request: pytest.FixtureRequest, rgw_tls_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Storage]:
    """At an address, or below a domain, where the bucket has a name of its own."""
    names_on_loopback(monkeypatch)
    monkeypatch.setattr(SignedWay, "read", None)
    endpoint, bucket = rgw_tls_bucket
    addressing: Addressing = "virtual" if request.param == S3_DOMAIN else "path"
    url = f"https://{request.param}:{urlsplit(endpoint.endpoint_url).port}"
    with closing(S3Storage(S3Location(bucket, "p", url, endpoint.region, addressing=addressing))) as storage:
        yield storage


async def test_what_was_put_is_read_in_threads_and_on_the_loop(storage: S3Storage) -> None:
    etag = (await trio.to_thread.run_sync(storage.put, "a b/ü+", BufferSource(DATA))).etag
    in_thread, on_loop = bytearray(LENGTH), bytearray(LENGTH)
    await trio.to_thread.run_sync(lambda: storage.read_into("a b/ü+", START, memoryview(in_thread), if_match=etag))
    url = storage.range_url("a b/ü+")
    assert url is not None
    if storage.location.addressing == "virtual":
        assert url.origin.startswith(f"https://{storage.location.bucket}.{S3_DOMAIN}:")
    with closing(LoopGets(1)) as gets:
        for _ in range(2):
            assert await gets.finish(gets.begin(url, START, memoryview(on_loop), etag))
        assert gets.resting == 1
    assert in_thread == on_loop == DATA[START : START + LENGTH]


def test_all_requests_trust_what_the_system_trusts(rgw_tls: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(rgw_tls.authority))
    where = S3Location(rgw_tls.create_bucket(), "", rgw_tls.endpoint_url, rgw_tls.region)
    with closing(S3Storage(where, ColdSettings())) as storage:
        etag = storage.put("o", BufferSource(DATA)).etag
        found = bytearray(LENGTH)
        storage.read_into("o", START, memoryview(found), if_match=etag)
    assert found == DATA[START : START + LENGTH]
