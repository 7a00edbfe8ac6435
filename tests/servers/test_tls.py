"""Certificates are good or bad as they say, and Ceph RGW speaks TLS as object stores do."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config

from tests.conftest import Bucket
from tests.servers.certificates import EXPIRED_DAYS, LOOPBACK, OTHER, S3_DOMAIN, VALID_DAYS, Authority, Certificate
from tests.servers.endpoint import S3Endpoint

LISTED = Path("/proc/net/if_inet6")
IPV6_ADDRESSES = LISTED.read_text() if LISTED.exists() else ""


@pytest.mark.parametrize(
    ("subjects", "days", "name", "problem"),
    [
        (LOOPBACK, VALID_DAYS, "localhost", None),
        (LOOPBACK, VALID_DAYS, "127.0.0.1", None),
        (LOOPBACK, VALID_DAYS, "::1", None),
        (LOOPBACK, VALID_DAYS, f"bucket.{S3_DOMAIN}", None),
        (LOOPBACK, VALID_DAYS, "127.0.0.2", "IP address mismatch"),
        (LOOPBACK, EXPIRED_DAYS, "localhost", "certificate has expired"),
        (OTHER, VALID_DAYS, "localhost", "Hostname mismatch"),
    ],
)
def test_a_certificate_is_good_for_its_names_and_days(
    authority: Authority, subjects: Sequence[str], days: int, name: str, problem: str | None
) -> None:
    trusting = ssl.create_default_context(cafile=authority.certificate)
    if problem is None:
        assert handshake(authority.issue("own", subjects, days), trusting, name) == "TLSv1.3"
        return
    with pytest.raises(ssl.SSLCertVerificationError, match=problem):
        handshake(authority.issue("own", subjects, days), trusting, name)


def test_an_authority_is_trusted_only_by_those_who_are_told(authority: Authority, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(authority.issue("own"), ssl.create_default_context(cafile=other.certificate), "localhost")


def test_bytes_put_by_https_come_back(rgw_tls_bucket: Bucket) -> None:
    endpoint, bucket = rgw_tls_bucket
    client = endpoint.client()
    client.put_object(Bucket=bucket, Key="a/b", Body=b"0123456789")
    assert client.get_object(Bucket=bucket, Key="a/b", Range="bytes=2-4")["Body"].read() == b"234"
    client.close()


def test_curl_needs_the_authority(rgw_tls: S3Endpoint) -> None:
    command = ["curl", "--silent", "--noproxy", "*", rgw_tls.endpoint_url]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 60  # curl: peer cannot be verified
    trusted = subprocess.run([*command, "--cacert", str(rgw_tls.authority)], capture_output=True, check=True)
    assert b"ListAllMyBucketsResult" in trusted.stdout


def test_sessions_are_resumed_and_connections_kept(rgw_tls: S3Endpoint) -> None:
    context = ssl.create_default_context(cafile=rgw_tls.authority)
    session = None
    for resumed in (False, True):
        with connected(rgw_tls) as plain, context.wrap_socket(plain, server_hostname=S3_DOMAIN, session=session) as tls:
            assert tls.version() == "TLSv1.3"
            assert tls.session_reused is resumed
            for _ in range(2):
                tls.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                answer = b""
                while not answer.endswith(b"\r\n0\r\n\r\n"):
                    answer += tls.recv(65536)
                assert answer.startswith(b"HTTP/1.1 200")
            session = tls.session


@pytest.mark.skipif(" lo" not in IPV6_ADDRESSES, reason="no IPv6")
def test_it_answers_by_ipv6(rgw_tls: S3Endpoint) -> None:
    url = rgw_tls.endpoint_url.replace("127.0.0.1", "[::1]")
    assert S3Endpoint(url, authority=rgw_tls.authority).create_bucket()


def test_a_bucket_is_found_by_its_host_name(rgw_tls_bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, bucket = rgw_tls_bucket
    names_on_loopback(monkeypatch)
    client = boto3.client(
        "s3",
        endpoint_url=f"https://{S3_DOMAIN}:{urlsplit(endpoint.endpoint_url).port}",
        verify=str(endpoint.authority),
        config=Config(s3={"addressing_style": "virtual"}, request_checksum_calculation="when_required"),
    )
    answer = client.put_object(Bucket=bucket, Key="k", Body=b"by name")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"}).startswith(f"https://{bucket}.")
    client.close()
    plain = endpoint.client()
    assert plain.get_object(Bucket=bucket, Key="k")["Body"].read() == b"by name"
    plain.close()


def names_on_loopback(patch: pytest.MonkeyPatch) -> None:
    """Let names below S3_DOMAIN be this machine's, which not every resolver believes."""
    resolve = socket.getaddrinfo

    def resolved(host: str, *arguments: object, **named: object) -> object:
        own = isinstance(host, str) and host.endswith(S3_DOMAIN)
        return resolve("127.0.0.1" if own else host, *arguments, **named)  # type: ignore[arg-type]

    patch.setattr(socket, "getaddrinfo", resolved)


def connected(endpoint: S3Endpoint) -> socket.socket:
    parts = urlsplit(endpoint.endpoint_url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port))


def handshake(certificate: Certificate, client: ssl.SSLContext, name: str) -> str | None:
    """Version of TLS that client and a server with the certificate agree on."""
    serving = certificate.serving()
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            serving.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()  # the client refused, which it tells itself

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours, client.wrap_socket(ours, server_hostname=name) as tls:
            return tls.version()
    finally:
        thread.join()
