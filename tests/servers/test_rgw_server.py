"""The real S3 server behaves as tierfs relies on, and goes away with its starter."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from urllib.request import urlopen

import pytest
from botocore.exceptions import ClientError

from tests.conftest import Bucket
from tests.servers.process import ServerError
from tests.servers.rgw import RgwServer

pytestmark = pytest.mark.s3


def test_returns_the_bytes_that_were_put(rgw_bucket: Bucket) -> None:
    endpoint, bucket = rgw_bucket
    client = endpoint.client()
    client.put_object(Bucket=bucket, Key="a/b", Body=b"0123456789")
    assert client.get_object(Bucket=bucket, Key="a/b", Range="bytes=2-4")["Body"].read() == b"234"
    client.close()


def test_if_none_match_refuses_a_second_put(rgw_bucket: Bucket) -> None:
    endpoint, bucket = rgw_bucket
    client = endpoint.client()
    client.put_object(Bucket=bucket, Key="once", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket=bucket, Key="once", Body=b"second", IfNoneMatch="*")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert client.get_object(Bucket=bucket, Key="once")["Body"].read() == b"first"
    client.close()


def test_content_md5_is_checked(rgw_bucket: Bucket) -> None:
    endpoint, bucket = rgw_bucket
    client = endpoint.client()
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    with pytest.raises(ClientError, match="BadDigest"):
        client.put_object(Bucket=bucket, Key="k", Body=b"bytes", ContentMD5=wrong)
    client.close()


@pytest.mark.slow
def test_stop_ends_every_daemon(tmp_path: Path) -> None:
    with RgwServer(tmp_path / "rgw") as server:
        url = server.endpoint_url
        commands = running_commands(tmp_path)
        assert len(commands) == 4, commands
    assert running_commands(tmp_path) == []
    with pytest.raises(OSError, match="refused"):
        urlopen(url)


def test_a_failing_start_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin" / "monmaptool"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(broken.parent), prepend=":")
    with pytest.raises(ServerError, match=rf"^ceph-rgw: could not start .* see {tmp_path}/rgw/start\.log"):
        RgwServer(tmp_path / "rgw").start()


def test_a_directory_with_other_content_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("bytes")
    with pytest.raises(ServerError, match="not empty"):
        RgwServer(tmp_path).start()
    assert (tmp_path / "precious").read_text() == "bytes"


def running_commands(directory: Path) -> list[str]:
    """Command lines of the processes that name the configuration in `directory`, zombies excluded."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_bytes().decode().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if str(directory / "rgw" / "ceph.conf") in words:
            found.append(" ".join(words))
    return found
