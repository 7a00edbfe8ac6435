"""Presigned URLs of objects, for any HTTP client to read ranges with.

One URL serves all ranges of an object for some minutes. It is a credential: it is never logged.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import urllib3

from tierfs.base.system.clock import Clock
from tierfs.engine.chunkstore.s3.signature import UrlSigner, learn

if TYPE_CHECKING:
    pass
from tierfs.engine.chunkstore.s3.client import S3Connection

# Validity of a URL at the server; short, because it is a credential for the object.
_VALID_S = 900

# We stop using it well before it expires, so that clocks may disagree and a queued GET still starts.
_USED_S = 600

# Cached URLs, about 1 KiB each.
_MAX_URLS = 4096


class _Signing(NamedTuple):
    """How URLs are signed and where all of them lead, as botocore decided both at once.

    One value, set at once: a thread that signs by the signer of another must find the origin too.
    """

    origin: str = ""
    signer: UrlSigner | None = None


class SignedUrls:
    """Signed paths and queries for reading the objects of one location. Thread-safe."""

    def __init__(self, connection: S3Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._targets: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._signing = _Signing()

    @property
    def origin(self) -> str:
        """Scheme, host and port of all URLs; "" before the first one."""
        return self._signing.origin

    def target(self, name: str) -> str:
        """Return the signed path and query for `name`. Raises botocore's errors; call within map_s3_errors."""
        target = self.signed(name)
        if target is not None:
            return target
        now = self._clock.monotonic_s()
        target = self._sign(self._connection.location.key(name))
        with self._lock:
            self._targets[name] = (now + _USED_S, target)
            self._targets.move_to_end(name)
            if len(self._targets) > _MAX_URLS:
                self._targets.popitem(last=False)
        return target

    def _sign(self, key: str) -> str:
        """Sign the first URL with each set of credentials by botocore, and others as that one."""
        held = self._connection.credentials
        credentials = None if held is None else held.get_frozen_credentials()
        signer = self._signing.signer
        if signer is not None and signer.credentials == credentials:
            return signer.target(key, self._clock.now_ms())
        url = self._connection.client.generate_presigned_url(
            "get_object", Params={"Bucket": self._connection.location.bucket, "Key": key}, ExpiresIn=_VALID_S
        )
        origin, target = _split(url)
        learned = None if credentials is None else learn(url, key, credentials, self._clock.now_ms())
        with self._lock:
            self._signing = _Signing(origin, learned)
        return target

    def signed(self, name: str) -> str | None:
        """Return a cached path and query that is still valid, or None."""
        with self._lock:
            used_until, target = self._targets.get(name, (0.0, ""))
        return target if used_until > self._clock.monotonic_s() else None

    def forget(self, name: str) -> None:
        """Have botocore sign again next time; idempotent."""
        with self._lock:
            self._targets.pop(name, None)
            self._signing = self._signing._replace(signer=None)

    def clear(self) -> None:
        """Forget all URLs."""
        with self._lock:
            self._targets.clear()


def _split(url: str) -> tuple[str, str]:
    """Split a URL into scheme and host, and path and query."""
    parsed = urllib3.util.parse_url(url)
    return f"{parsed.scheme}://{parsed.netloc}", parsed.request_uri
