"""TLS of ranged GETs and of S3: only servers that are to be trusted are asked, by the right name; never by urllib3."""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio

from tests.conformance.test_ranged_get import Gets, InThreads, OnLoop
from tests.conftest import Bucket
from tests.servers.answers import BODY, GOOD
from tests.servers.certificates import EXPIRED_DAYS, LOOPBACK, OTHER, S3_DOMAIN, VALID_DAYS, Authority
from tests.servers.endpoint import S3Endpoint
from tests.servers.scripted_http import Do, ScriptedHttp, ServerTls
from tierfs.base.options.config import ColdSettings
from tierfs.base.options.kinds import Addressing
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.http.connections import IdleConnections
from tierfs.engine.chunkstore.http.on_loop import LoopGets
from tierfs.engine.chunkstore.http.ranged_get import origin_of
from tierfs.engine.chunkstore.http.tls import TlsClient, TlsSocket
from tierfs.engine.chunkstore.protocol import BufferSource, RangeUrl
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.storage import S3Storage
from tierfs.engine.chunkstore.s3.ways import SignedWay

SERVER = origin_of("https://127.0.0.1")


@pytest.fixture(params=[OnLoop, InThreads])
def gets(request: pytest.FixtureRequest) -> Iterator[Gets]:
    with closing(request.param()) as gets:
        yield gets
        assert gets.running == 0


async def got(gets: Gets, url: RangeUrl) -> bytes | str | None:
    """The bytes; else why the server is not to be trusted, which only threads say."""
    try:
        return await gets.get(url)
    except ssl.SSLCertVerificationError as exc:
        return exc.verify_message


@pytest.mark.parametrize(
    ("subjects", "days", "trusted", "problem"),
    [
        (LOOPBACK, EXPIRED_DAYS, True, "certificate has expired"),
        (OTHER, VALID_DAYS, True, "IP address mismatch"),
        (LOOPBACK, VALID_DAYS, False, "issuer certificate"),  # the system's authorities do not count the test's
    ],
)
async def test_a_server_with_a_wrong_certificate_is_not_asked(
    gets: Gets,
    nursery: trio.Nursery,
    authority: Authority,
    subjects: tuple[str, ...],
    days: int,
    trusted: bool,
    problem: str,
) -> None:
    client = TlsClient(str(authority.certificate)) if trusted else TlsClient()
    tls = ServerTls(authority.issue("wrong", subjects, days).serving(), client)
    server = await ScriptedHttp((GOOD,), tls).start(nursery)
    found = await got(gets, server.url)
    assert found is None if isinstance(gets, OnLoop) else problem in str(found)
    assert (server.requests, gets.resting) == ([], 0)


async def test_a_plain_server_is_not_taken_for_an_encrypted_one(
    gets: Gets, nursery: trio.Nursery, server_tls: ServerTls
) -> None:
    server = await ScriptedHttp(((b"HTTP/1.1 400 Bad Request\r\n\r\n", Do.AWAIT_CLOSE),)).start(nursery)
    encrypted = server.url.origin.replace("http:", "https:")
    assert await got(gets, replace(server.url, origin=encrypted, tls=server_tls.trusting)) is None
    assert gets.resting == 0


async def test_an_authority_is_trusted_when_the_system_says_so(
    gets: Gets, nursery: trio.Nursery, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    server = await ScriptedHttp((GOOD,), ServerTls(authority.issue("good").serving(), TlsClient())).start(nursery)
    assert await got(gets, server.url) == BODY


async def test_the_server_is_told_which_name_is_meant(
    gets: Gets, nursery: trio.Nursery, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket's own name, as virtual-host addressing puts it, below a wildcard of the certificate."""
    told: list[str | None] = []
    serving = authority.issue("named").serving()
    serving.sni_callback = lambda _, name, __: told.append(name)
    server = await ScriptedHttp((GOOD,), ServerTls(serving, TlsClient(str(authority.certificate)))).start(nursery)
    port = int(server.url.origin.rpartition(":")[2])
    on_loop, in_thread = trio.open_tcp_stream, socket.create_connection
    monkeypatch.setattr(trio, "open_tcp_stream", lambda *_: on_loop("127.0.0.1", port))
    monkeypatch.setattr(socket, "create_connection", lambda _, limit_s: in_thread(("127.0.0.1", port), limit_s))
    assert await got(gets, replace(server.url, origin=f"https://bucket.{S3_DOMAIN}:{port}")) == BODY
    assert told == [f"bucket.{S3_DOMAIN}"]
    ((_, request),) = server.requests
    assert f"\r\nHost: bucket.{S3_DOMAIN}:{port}\r\n" in request.decode()


async def test_each_driver_resumes_the_others_sessions_and_its_own(
    nursery: trio.Nursery, server_tls: ServerTls
) -> None:
    tls = ServerTls(server_tls.serving, TlsClient(str(server_tls.authority)))
    server = await ScriptedHttp((GOOD, GOOD, GOOD, GOOD), tls).start(nursery)
    with closing(OnLoop()) as on_loop, closing(InThreads()) as in_threads:
        for number, driver in enumerate((in_threads, on_loop, on_loop, in_threads)):
            assert await driver.get(server.url) == BODY
            await server.ended[number].wait()
    assert server.resumed == [False, True, True, True]


async def test_clients_that_trust_others_share_no_connection(
    gets: Gets, nursery: trio.Nursery, server_tls: ServerTls
) -> None:
    if isinstance(gets, InThreads):
        return  # each has a client of its own
    server = await ScriptedHttp(((*GOOD, Do.AWAIT_CLOSE), GOOD), server_tls).start(nursery)
    assert await got(gets, server.url) == BODY
    assert await got(gets, replace(server.url, tls=TlsClient())) is None
    assert server.served_by == [0]


def shaken(server_tls: ServerTls) -> tuple[TlsSocket, ssl.SSLSocket]:
    """Both ends of a connection after the handshake; the server's tickets are not read yet."""
    near, far = socket.socketpair()
    served: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: served.append(server_tls.serving.wrap_socket(far, server_side=True)))
    thread.start()
    ours = server_tls.trusting.wrap(near, SERVER)
    ours.do_handshake()
    ours.settimeout(0)
    thread.join()
    return ours, served[0]


@pytest.mark.parametrize("blocking", [True, False])
def test_tickets_that_come_late_do_not_end_a_connections_rest_and_bytes_do(
    server_tls: ServerTls, blocking: bool
) -> None:
    """A server sends them after the handshake, when the client may already have put the connection aside."""
    ours, theirs = shaken(server_tls)
    os.set_blocking(ours.fileno(), blocking)  # as threads do
    with closing(IdleConnections(1, SERVER, server_tls.trusting)) as idle, theirs:
        idle.put_back(ours, clean=True)
        assert idle.take() is ours
        assert os.get_blocking(ours.fileno()) == blocking
        idle.put_back(ours, clean=True)
        theirs.send(b"unasked")
        assert idle.take() is None
    ours, theirs = shaken(server_tls)
    with closing(IdleConnections(1, SERVER, server_tls.trusting)) as idle, theirs:
        theirs.send(b"an answer's end, and more")
        assert ours.recv(15) == b"an answer's end"
        idle.put_back(ours, clean=True)  # the kernel holds none of the rest: it is decrypted already
        assert idle.take() is None


@pytest.mark.parametrize("content", [None, "", "no certificate", "a directory"])
def test_an_unusable_bundle_is_named(tmp_path: Path, content: str | None) -> None:
    bundle = tmp_path / "bundle.pem"
    if content == "a directory":
        bundle.mkdir()
    elif content is not None:
        bundle.write_text(content)
    with pytest.raises(InvalidRequest, match=r"bundle\.pem: cannot read certificates from it") as raised:
        TlsClient(str(bundle))
    assert raised.value.remedy == "set AWS_CA_BUNDLE to a file of certificates in PEM, or unset it"


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
