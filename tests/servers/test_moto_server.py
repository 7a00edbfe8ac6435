"""moto's server starts, serves and ends."""

from __future__ import annotations

from urllib.request import urlopen

import pytest

from tests.conftest import Bucket
from tests.servers.moto_server import MotoServer


def test_returns_the_bytes_that_were_put(moto_bucket: Bucket) -> None:
    endpoint, bucket = moto_bucket
    client = endpoint.client()
    client.put_object(Bucket=bucket, Key="a/b", Body=b"0123456789")
    assert client.get_object(Bucket=bucket, Key="a/b", Range="bytes=2-4")["Body"].read() == b"234"
    client.close()


def test_ends_when_stopped() -> None:
    with MotoServer() as server:
        url = server.endpoint_url
    with pytest.raises(OSError, match="refused"):
        urlopen(url)
