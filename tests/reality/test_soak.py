"""The soak's own parts: it fails for what grows or is wrong, and its server for what was drawn."""

from __future__ import annotations

import http.client
from collections import Counter
from urllib.parse import urlsplit

import pytest

from tests.conftest import Bucket
from tests.reality.soak import PARTS, TOLERANCES, Seen
from tests.servers.faulty import FaultyServer


@pytest.mark.parametrize("name", TOLERANCES)
def test_growth_beyond_the_tolerance_fails(name: str) -> None:
    for growth in (0, 1):
        sample = dict.fromkeys(TOLERANCES, 1000)
        last = {**sample, name: 1000 + TOLERANCES[name] + growth}
        grown = Seen([{**sample, name: 0}, *[sample] * (PARTS - 2), last])
        assert len(grown.failures()) == growth
    assert Seen([sample] * PARTS, wrong=["a byte"]).failures() == ["a byte"]


def test_requests_fail_as_often_as_asked_and_not_before(moto_bucket: Bucket) -> None:
    endpoint, bucket = moto_bucket
    client = endpoint.client()
    client.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    url = client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "k"})
    client.close()

    def get() -> str:
        connection = http.client.HTTPConnection(urlsplit(server.endpoint_url).netloc)
        try:
            connection.request("GET", url.removeprefix(endpoint.endpoint_url))
            response = connection.getresponse()
            body = response.read()
            assert body == b"0123456789" or response.status >= 500
            return str(response.status)
        except (http.client.HTTPException, OSError):
            return "broken"
        finally:
            connection.close()

    with FaultyServer(endpoint.endpoint_url, 0.3) as server:
        assert {get() for _ in range(20)} == {"200"}
        server.begin()
        answers = Counter(get() for _ in range(60))
    assert answers.keys() == {"200", "500", "503", "broken"}
