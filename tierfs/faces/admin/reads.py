"""Answer reads of a segment: a representation of its bytes, with Range and ETag (RFC 9110, sections 8.8, 13 and 14)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tierfs.base.words import units
from tierfs.base.words.types import MIB, ByteRange
from tierfs.faces.python.segment import Reader, Segment

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]

_STEP_BYTES = MIB

_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")

START_HEADER = "tierfs-start-offset"
LENGTH_HEADER = "tierfs-length"


async def read_segment(request: Request, segment: Segment, priority: str | None, in_thread: InThread) -> Response:
    """Answer a GET or HEAD of a segment's bytes, from its start offset on. Raises what opening it raises."""
    reader: Reader = await in_thread(partial(segment.open, read_priority=priority))
    try:
        etag = f'"{reader.segment_id:x}-{reader.start_offset:x}-{reader.length:x}"'
        headers = {
            "etag": etag,
            "accept-ranges": "bytes",
            START_HEADER: str(reader.start_offset),
            LENGTH_HEADER: str(reader.length),
        }
        early = _conditional(request, etag, headers)
        wanted = None if early is not None else _range_of(request, etag, reader.size)
        if early is None and wanted is not None and not wanted:
            early = Response(status_code=416, headers={**headers, "content-range": f"bytes */{reader.size}"})
        if early is not None:
            await in_thread(reader.close)
            return early
        part = ByteRange(0, reader.size) if wanted is None else wanted
        headers["content-length"] = str(part.length_bytes)
        if wanted is not None:
            headers["content-range"] = f"bytes {part.start}-{part.end - 1}/{reader.size}"
        status = 200 if wanted is None else 206
        if request.method == "HEAD":
            await in_thread(reader.close)
            return Response(status_code=status, headers=headers, media_type="application/octet-stream")
        # The first bytes are read before the answer begins, so that a tier that is away is an error and no cut body.
        first = await in_thread(partial(_read, reader, part.start, part.end))
    except BaseException:
        await in_thread(reader.close)
        raise
    body = _rest(reader, first, part, in_thread)
    return StreamingResponse(body, status, headers, "application/octet-stream")


async def _rest(reader: Reader, first: bytes, part: ByteRange, in_thread: InThread) -> AsyncIterator[bytes]:
    try:
        yield first
        at = part.start + len(first)
        while at < part.end:
            data = await in_thread(partial(_read, reader, at, part.end))
            yield data
            at += len(data)
    finally:
        await in_thread(reader.close)


def _read(reader: Reader, at: int, end: int) -> bytes:
    return reader.read_at(reader.start_offset + at, min(_STEP_BYTES, end - at))


def _conditional(request: Request, etag: str, headers: dict[str, str]) -> Response | None:
    """Return the answer that a condition asks for instead of the bytes; None where there is none."""
    wanted = request.headers.get("if-match")
    if wanted is not None and not _matches(wanted, etag):
        return Response(status_code=412, headers=headers)
    known = request.headers.get("if-none-match")
    if known is not None and _matches(known, etag):
        return Response(status_code=304, headers=headers)
    return None


def _matches(listed: str, etag: str) -> bool:
    return listed.strip() == "*" or etag in [each.strip().removeprefix("W/") for each in listed.split(",")]


def _range_of(request: Request, etag: str, size: int) -> ByteRange | None:
    """Return the range that is asked for, empty if it is outside; None for all bytes, also where a range is none."""
    text = request.headers.get("range")
    unless = request.headers.get("if-range")
    match = None if text is None or (unless is not None and unless != etag) else _RANGE.fullmatch(text.strip())
    if match is None or match[1] == match[2] == "":
        return None
    first, last = units.decimal(match[1], units.MAX_BYTES), units.decimal(match[2], units.MAX_BYTES)
    if match[1] == "":  # the last bytes, as many as that
        return ByteRange(max(0, size - (size if last is None else last)), size)
    if first is None or first >= size:
        return ByteRange(0, 0)
    if last is not None and last < first:
        return None
    return ByteRange(first, size if last is None else min(size, last + 1))
