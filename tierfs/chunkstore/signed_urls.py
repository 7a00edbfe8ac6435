"""Presigned URLs: one serves all ranges of an object for some minutes. A credential: it is never logged."""

from __future__ import annotations

import threading
from collections import OrderedDict

import urllib3

from tierfs.chunkstore.s3_client import S3Connection
from tierfs.clock import Clock

_VALID_S = 900
"""How long the server accepts a URL; short, because whoever sees it may read the object."""
_USED_S = 600
"""How long we use it: well before it expires, so that clocks may disagree and a queued GET still starts."""
_MAX_URLS = 4096
"""Cached URLs, about 1 KiB each."""


class SignedUrls:
    """Paths and queries that read the objects of one location. Thread-safe."""

    def __init__(self, connection: S3Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._targets: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self.origin = ""
        """Scheme, host and port of all of them; "" before the first one."""

    def target(self, name: str) -> str:
        """Signed path and query for `name`. Raises what botocore raises, within map_s3_errors."""
        target = self.signed(name)
        if target is not None:
            return target
        now = self._clock.monotonic_s()
        location = self._connection.location
        url = self._connection.client.generate_presigned_url(
            "get_object", Params={"Bucket": location.bucket, "Key": location.key(name)}, ExpiresIn=_VALID_S
        )
        self.origin, target = _split(url)
        with self._lock:
            self._targets[name] = (now + _USED_S, target)
            self._targets.move_to_end(name)
            if len(self._targets) > _MAX_URLS:
                self._targets.popitem(last=False)
        return target

    def signed(self, name: str) -> str | None:
        """What was signed before and is still good."""
        with self._lock:
            used_until, target = self._targets.get(name, (0.0, ""))
        return target if used_until > self._clock.monotonic_s() else None

    def forget(self, name: str) -> None:
        """Sign anew next time; idempotent."""
        with self._lock:
            self._targets.pop(name, None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._targets.clear()


def _split(url: str) -> tuple[str, str]:
    """Scheme and host of a URL, and its path and query."""
    parsed = urllib3.util.parse_url(url)
    return f"{parsed.scheme}://{parsed.netloc}", parsed.request_uri
