"""One ranged read, and its answer as a general client received it: checked, then received into the buffer."""

from __future__ import annotations

import re
from http import HTTPStatus

import urllib3

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import Archived, InvalidRequest, Unavailable
from tierfs.engine.chunkstore.protocol import OnReceived
from tierfs.engine.chunkstore.s3.errors import READ, error_of_answer, map_s3_errors
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.validate import check_etag, past_end, step_end

# Limit for reading an error document.
_MAX_ERROR_BYTES = 64 * 1024

_ERROR_CODE = re.compile(rb"<Code>([A-Za-z0-9.]+)</Code>")
# RFC 9110, section 14.4; `*` is a length that the server does not know.
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")


@dataclass(frozen=True, slots=True)
class RangeRead:
    """One range of one object, and the buffer for its bytes."""

    location: S3Location
    name: str
    offset: int
    buffer: memoryview
    if_match: str | None
    progress: OnReceived | None

    @property
    def header(self) -> str:
        """The value of the Range header."""
        return f"bytes={self.offset}-{self.offset + len(self.buffer) - 1}"

    def rest(self, done: int) -> RangeRead:
        """Return the read without its first bytes, which have arrived."""
        progress = self.progress
        shifted: OnReceived | None = None if progress is None else lambda received: progress(done + received)
        return RangeRead(self.location, self.name, self.offset + done, self.buffer[done:], self.if_match, shifted)

    def receive(self, answer: urllib3.BaseHTTPResponse) -> int:
        """Check the answer, then receive its body into the buffer; return the length.

        Raises InvalidRequest for a server without byte ranges, EtagDiffers, DataLoss past the end, and what
        `map_s3_errors` raises.
        """
        if answer.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise self._refused(answer)
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range") or "")
        object_bytes = None if match is None or match[3] == "*" else int(match[3])
        check_etag(self.name, (answer.headers.get("ETag") or "").strip('"'), self.if_match, object_bytes)
        # RFC 9110, section 14.2: a server may ignore the range, and send all with 200.
        if match is None or int(match[1]) != self.offset:
            raise InvalidRequest(f"{self.location.endpoint} does not serve byte ranges")
        if int(match[2]) + 1 != self.offset + len(self.buffer):
            raise past_end(self.name, self.offset, len(self.buffer), match[3])
        return self._receive_body(answer)

    def _receive_body(self, answer: urllib3.BaseHTTPResponse) -> int:
        stream = answer._fp  # type: ignore[attr-defined]  # urllib3's own readinto reads and copies
        done = 0
        while done < len(self.buffer):
            with map_s3_errors(self.location, READ, self.name):
                received = stream.readinto(self.buffer[done : step_end(done)])
            if not received:
                url, endpoint = self.location.url(self.name), self.location.endpoint
                raise Unavailable(f"{endpoint} ended {url} after {done} of {len(self.buffer)} bytes")
            done += received
            if self.progress is not None:
                self.progress(done)
        return done

    def require_not_archived(self, answer: urllib3.BaseHTTPResponse) -> None:
        """Raise Archived if that is why the server refuses."""
        error = self._refused(answer)
        if isinstance(error, Archived):
            raise error

    def _refused(self, answer: urllib3.BaseHTTPResponse) -> Exception:
        """Return the error of an answer that is not the object."""
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            # RFC 9110, section 15.5.17: no byte of the range exists.
            return past_end(self.name, self.offset, len(self.buffer), "fewer")
        with map_s3_errors(self.location, READ, self.name):
            match = _ERROR_CODE.search(answer.read(_MAX_ERROR_BYTES))
        code = match[1].decode("ascii") if match else str(answer.status)
        return error_of_answer(self.location, READ, self.name, code, answer.status)


def has_range(answer: urllib3.BaseHTTPResponse) -> bool:
    """Return whether the answer is a part of an object, and says which."""
    ranged = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range") or "") is not None
    return answer.status == HTTPStatus.PARTIAL_CONTENT and ranged
