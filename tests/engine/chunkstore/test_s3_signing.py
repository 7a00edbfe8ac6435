"""URLs of S3 are signed as botocore signs them, and what is not understood is left to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from botocore.credentials import ReadOnlyCredentials

from tierfs.base.options.config import ColdSettings
from tierfs.base.system.clock import SystemClock
from tierfs.engine.chunkstore.s3.client import connect
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.signature import learn
from tierfs.engine.chunkstore.s3.signed_urls import SignedUrls

LOCATIONS = (
    S3Location("my-bucket"),
    S3Location("my-bucket", region="eu-central-1", addressing="path"),
    S3Location("my.dotted.bucket", "some/ prefix é"),
    S3Location("bucket", "p", "http://127.0.0.1:9000"),
    S3Location("bucket", endpoint_url="http://server:80", region="elsewhere"),
    S3Location("bucket", endpoint_url="http://[::1]:9000"),
    S3Location("bucket", endpoint_url="https://S3.Example.com:443/below", addressing="virtual"),
)
KEYS = ("b", "a b/é~+*?&=#%.x", "segments/%2F/x", "-._~!$'()", "日本")


def ms_of(url: str) -> int:
    """When it was signed."""
    time = datetime.strptime(dict(parse_qsl(urlsplit(url).query))["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
    return int(time.replace(tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(params=[None, "a/session+token=="])
def credentials(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ReadOnlyCredentials:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "se/cret+")
    if request.param is None:
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    else:
        monkeypatch.setenv("AWS_SESSION_TOKEN", request.param)
    return ReadOnlyCredentials("key", "se/cret+", request.param)


@pytest.mark.parametrize("pays", [False, True])
@pytest.mark.parametrize("location", LOCATIONS, ids=lambda one: one.url() + one.endpoint)
def test_every_key_is_signed_as_botocore_signs_it(
    location: S3Location, credentials: ReadOnlyCredentials, pays: bool
) -> None:
    client = connect(location, ColdSettings(requester_pays=pays)).client

    def by_botocore(name: str) -> str:
        return client.generate_presigned_url("get_object", {"Bucket": location.bucket, "Key": location.key(name)}, 900)

    first = by_botocore("first")
    signer = learn(first, location.key("first"), credentials, ms_of(first))
    assert signer is not None
    for name in KEYS:
        wanted = urlsplit(by_botocore(name))
        found = urlsplit(signer.target(location.key(name), ms_of(wanted.geturl())))
        assert found.path == wanted.path
        assert sorted(parse_qsl(found.query)) == sorted(parse_qsl(wanted.query))
        assert (dict(parse_qsl(found.query)).get("x-amz-request-payer") == "requester") is pays


def test_what_is_not_understood_is_left_to_botocore(credentials: ReadOnlyCredentials) -> None:
    location = LOCATIONS[0]
    url = connect(location, ColdSettings()).client.generate_presigned_url(
        "get_object", {"Bucket": location.bucket, "Key": "k"}, 900
    )
    now_ms = ms_of(url)
    others = (
        (url + "&more=1", "k", credentials, now_ms),
        (url[:-4] + "0000", "k", credentials, now_ms),
        (url.replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"), "k", credentials, now_ms),
        (url, "another", credentials, now_ms),
        (url, "k", credentials._replace(secret_key="new"), now_ms),
        (url, "k", credentials, now_ms + 90_000),
        ("https://bucket.s3.amazonaws.com/k?AWSAccessKeyId=key&Signature=x&Expires=1", "k", credentials, now_ms),
    )
    assert learn(url, "k", credentials, now_ms) is not None
    for other in others:
        assert learn(*other) is None, other


def test_botocore_signs_once_for_each_set_of_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    connection = connect(LOCATIONS[3], ColdSettings())
    signed: list[str] = []
    by_botocore = connection.client.generate_presigned_url

    def counted(verb: str, **named: Any) -> str:
        signed.append(named["Params"]["Key"])
        return by_botocore(verb, **named)

    monkeypatch.setattr(connection.client, "generate_presigned_url", counted)
    urls = SignedUrls(connection, SystemClock())
    for name in "abc":
        assert urls.target(name).startswith(f"/bucket/p/{name}?")
    assert signed == ["p/a"]
    assert connection.credentials is not None
    connection.credentials.secret_key = "another"
    urls.target("d")
    urls.target("e")
    assert signed == ["p/a", "p/d"]
    urls.forget("e")  # it was refused
    urls.target("e")
    assert signed == ["p/a", "p/d", "p/e"]


def test_what_one_client_registers_no_other_hears() -> None:
    """All begin with the same handlers of botocore, which are made once."""
    first, second = (connect(LOCATIONS[0], ColdSettings()).client for _ in range(2))
    heard: list[str] = []
    first.meta.events.register("said", lambda **_: heard.append("first"))
    for client in (first, second, connect(LOCATIONS[0], ColdSettings()).client):
        client.meta.events.emit("said.once")
    assert heard == ["first"]
