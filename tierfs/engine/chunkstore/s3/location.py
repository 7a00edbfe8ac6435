"""The location of a cold tier in S3. Uses no vendor package, so that it is cheap to import."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.kinds import Addressing
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable

S3_SCHEME = "s3"
_PREFIX = f"{S3_SCHEME}://"


def split_s3_url(url: str) -> tuple[str, str]:
    """Split `s3://bucket/prefix` into both; nothing in a key is special, `#` and `?` included.

    Raises InvalidRequest for any other URL.
    """
    bucket, _, prefix = url.removeprefix(_PREFIX).partition("/")
    if not url.startswith(_PREFIX) or not bucket:
        raise InvalidRequest(f"{url} is not an S3 location", remedy="write it as s3://BUCKET/PREFIX")
    return bucket, prefix


def recorded_url(url: str) -> str:
    """Return the URL of a place for a store's objects in the form that is recorded. Raises InvalidRequest."""
    parts = urlsplit(url)
    if parts.scheme != S3_SCHEME or not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        from tierfs.engine.chunkstore.places import address

        raise InvalidRequest(
            f"{address.without_secret(url)} is not an S3 location", remedy="write it as s3://BUCKET/PREFIX"
        )
    return f"{_PREFIX}{parts.netloc}/{parts.path.strip('/')}".rstrip("/")


def configured_endpoint() -> str:
    """Return the endpoint that the environment specifies for AWS' tools; "" if it specifies no endpoint.

    It is recorded with the place: a mount that is started without that variable must not use another server.
    """
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return ""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


@dataclass(frozen=True, slots=True)
class S3Location:
    """A bucket, a prefix in it, and how to reach it. Never holds credentials: botocore's chain finds them."""

    bucket: str
    prefix: str = ""
    """Without leading or trailing slashes; "" is the whole bucket."""
    endpoint_url: str | None = None
    """None: AWS."""
    region: str | None = None
    profile: str | None = None
    """Profile of the AWS configuration files."""
    addressing: Addressing = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", self.prefix.strip("/"))
        if not self.bucket:
            raise InvalidRequest("an S3 location needs the name of a bucket")
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url)

    @property
    def endpoint(self) -> str:
        """The endpoint as messages name it."""
        return self.endpoint_url or "AWS S3"

    def key(self, name: str) -> str:
        """Return the object key of a name relative to this location."""
        return f"{self.prefix}/{name}" if self.prefix else name

    def name(self, key: str) -> str:
        """Return the relative name of a key under this location."""
        return key[len(self.prefix) + 1 :] if self.prefix else key

    def url(self, name: str = "") -> str:
        """`s3://bucket/key`, safe to print."""
        key = self.key(name) if name else self.prefix
        return printable(f"s3://{self.bucket}/{key}" if key else f"s3://{self.bucket}")

    def addressing_style(self) -> str:
        """Return botocore's keyword for the place of the bucket's name in URLs."""
        if self.addressing != "auto":
            return self.addressing
        return "path" if self.endpoint_url is not None and _is_bare_host(self.endpoint_url) else "auto"


def _check_endpoint(endpoint_url: str) -> None:
    parts = urlsplit(endpoint_url)
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("an endpoint URL must not contain credentials", remedy="use an AWS profile")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidRequest(f"{printable(endpoint_url)}: not the http(s) URL of an S3 endpoint")


def _is_bare_host(endpoint_url: str) -> bool:
    """Return whether the host is an address or a single label, which cannot take a bucket's name as prefix."""
    host = urlsplit(endpoint_url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host
    return True
