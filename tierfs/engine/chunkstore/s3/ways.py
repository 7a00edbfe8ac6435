"""The ways to read a range: our own client, urllib3 and botocore, each given up where the server does not take it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import urllib3

from tierfs.base.system.clock import Clock
from tierfs.base.system.metrics import MetricName, MetricSink
from tierfs.base.words.errors import TierfsError
from tierfs.engine.chunkstore.http.connections import SOCKET_OPTIONS
from tierfs.engine.chunkstore.http.in_thread import ThreadGets
from tierfs.engine.chunkstore.http.ranged_get import AnsweredOtherwise
from tierfs.engine.chunkstore.protocol import RangeUrl
from tierfs.engine.chunkstore.s3.answer import RangeRead
from tierfs.engine.chunkstore.s3.client import S3Connection
from tierfs.engine.chunkstore.s3.errors import READ, error_of_answer, map_s3_errors
from tierfs.engine.chunkstore.s3.signed_urls import SignedUrls

_log = logging.getLogger(__name__)

# In a row, each with a later way succeeding, before a way is given up (a guess).
_MOST_REFUSALS = 3


class Way(ABC):
    """One way to read a range; disabled for good after some refusals in a row."""

    farewell = ""
    """The log line when it is disabled."""

    def __init__(self, connection: S3Connection) -> None:
        self.connection = connection
        self.refusals = 0
        self.is_given_up = False
        self._lock = threading.Lock()

    @property
    def given_up(self) -> bool:
        """Whether it is no longer tried."""
        return self.is_given_up

    @abstractmethod
    def read(self, read: RangeRead) -> int:
        """Fill the buffer, or the first bytes of it; return how many bytes arrived.

        Raises AnsweredOtherwise if a later way may succeed where this one cannot.
        """

    def note_refusal(self) -> None:
        """Count a refusal after which a later way succeeded; disable this way after several."""
        self.refusals += 1
        if self.refusals >= _MOST_REFUSALS and not self.is_given_up:
            self.is_given_up = True
            _log.info(self.farewell, self.connection.location.endpoint)

    def close(self) -> None:  # noqa: B027  # not every way keeps connections of its own
        """Close idle connections."""


class OwnWay(Way):
    """Our own client, in one try, and the loop's: signed URLs, for a known version."""

    farewell = "%s answers ranged GETs in a form that needs a general client"

    def __init__(self, signed: SignedWay) -> None:
        super().__init__(signed.connection)
        self._signed = signed
        self._gets: ThreadGets | None = None

    @property
    def given_up(self) -> bool:
        return self.is_given_up or self._signed.given_up

    def read(self, read: RangeRead) -> int:
        """Return 0 also if unusable: without an etag to match."""
        if read.if_match is None:
            return 0
        try:
            with map_s3_errors(read.location, READ, read.name):
                target = self._signed.urls.target(read.name)
                gets = self._gets or self._open()
                done = gets.read_into(target, read.offset, read.buffer, read.if_match, read.progress)
        except AnsweredOtherwise as exc:
            if exc.status >= HTTPStatus.INTERNAL_SERVER_ERROR:  # do not ask an overloaded server twice
                raise error_of_answer(read.location, READ, read.name, "", exc.status) from exc
            raise
        if done:
            self.refusals = self._signed.refusals = 0
        return done

    def range_url(self, name: str) -> RangeUrl | None:
        """Return a signed URL if cached or if signing takes no request."""
        urls = self._signed.urls
        if self.given_up:
            return None
        target = urls.signed(name)
        if target is None and self.connection.signs_at_once:
            try:
                with map_s3_errors(self.connection.location, READ, name):
                    target = urls.target(name)
            except TierfsError:
                return None  # read_into reports the same error
        return None if target is None else RangeUrl(urls.origin, target, self.connection.tls)

    def note_refusal(self) -> None:
        super().note_refusal()
        if self.is_given_up:
            self.close()

    def close(self) -> None:
        with self._lock:
            if self._gets is not None:
                self._gets.close()

    def _open(self) -> ThreadGets:
        """Return the client, once a signed URL has set the origin."""
        with self._lock:
            if self._gets is None:
                self._gets = ThreadGets(self._signed.urls.origin, self.connection.settings, self.connection.tls)
            return self._gets


class SignedWay(Way):
    """urllib3 with signed URLs."""

    farewell = "%s refuses presigned URLs: reading with get_object"

    def __init__(self, connection: S3Connection, clock: Clock, metrics: MetricSink) -> None:
        super().__init__(connection)
        self.urls = SignedUrls(connection, clock)
        self._metrics = metrics
        self._pool: urllib3.HTTPConnectionPool | None = None

    def read(self, read: RangeRead) -> int:
        """Raise AnsweredOtherwise for a refused URL: the credentials may still allow the read. Raises Archived."""
        with self.get(read) as answer:
            if answer.status == HTTPStatus.FORBIDDEN:
                read.require_not_archived(answer)
                self.urls.forget(read.name)
                raise AnsweredOtherwise(answer.status)
            self.refusals = 0
            return read.receive(answer)

    @contextmanager
    def get(self, read: RangeRead) -> Iterator[urllib3.BaseHTTPResponse]:
        """Yield the answer to the GET, also an error."""
        with map_s3_errors(read.location, READ, read.name):
            target = self.urls.target(read.name)
            answer = (self._pool or self._open()).urlopen(
                "GET",
                target,
                headers={"Range": read.header},
                preload_content=False,
                decode_content=False,
                redirect=False,
                retries=False,
                pool_timeout=self.connection.settings.read_timeout_s,  # type: ignore[arg-type]
            )
        with _returned(answer):
            yield answer

    def note_refusal(self) -> None:
        self._metrics.count(MetricName.PRESIGNED_FALLBACKS)
        super().note_refusal()

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.close()
        self.urls.clear()

    def _open(self) -> urllib3.HTTPConnectionPool:
        """Return the pool, once a signed URL has set the origin."""
        with self._lock:
            if self._pool is None:
                self._pool = _pool_of(self.urls.origin, self.connection)
            return self._pool


class GetObjectWay(Way):
    """botocore: works everywhere, and takes the most CPU."""

    def read(self, read: RangeRead) -> int:
        location = read.location
        with map_s3_errors(location, READ, read.name):
            response = self.connection.client.get_object(
                Bucket=location.bucket, Key=location.key(read.name), Range=read.header
            )
        # The body's own readinto copies; the response inside it is of the same kind as a presigned one.
        with _returned(response["Body"]._raw_stream) as answer:  # type: ignore[attr-defined]
            return read.receive(answer)


def _pool_of(origin: str, connection: S3Connection) -> urllib3.HTTPConnectionPool:
    settings = connection.settings
    options: dict[str, Any] = {} if connection.tls is None else {"ssl_context": connection.tls.context}
    return urllib3.connection_from_url(
        origin,
        maxsize=settings.connections,
        block=True,
        timeout=urllib3.Timeout(connect=settings.connect_timeout_s, read=settings.read_timeout_s),
        socket_options=SOCKET_OPTIONS,
        **options,
    )


@contextmanager
def _returned(answer: urllib3.BaseHTTPResponse) -> Iterator[urllib3.BaseHTTPResponse]:
    """Give the connection back to its pool: open if the body was read to its end, else closed."""
    try:
        yield answer
    finally:
        original = getattr(answer, "_original_response", None)
        if original is None or not original.isclosed():
            answer.close()
        answer.release_conn()
