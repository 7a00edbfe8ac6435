"""Answers: parameters of requests, records as JSON, and errors by what the caller should do."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tierfs import errors, units
from tierfs.admin.guard import Refusal
from tierfs.errors import InvalidRequest, TierfsError, Unavailable

JSON = "application/json"

# RFC 9110, and RFC 4918 for 507. The first class that an error is an instance of counts.
_STATUS: tuple[tuple[type[TierfsError], int], ...] = (
    (errors.NotFound, 404),
    (errors.PermissionDenied, 403),
    (errors.NoColdTier, 409),
    (errors.InvalidRequest, 400),
    (errors.Conflict, 409),
    (errors.StorageFull, 507),
    (errors.Unconfirmed, 504),
    (errors.Unavailable, 503),
    (errors.Closed, 503),
)

# Of most appends: to find that there are none takes as long as a regular expression for each header.
_NONE = QueryParams("")

# What clients wait before they try again, in seconds (a guess).
_RETRY_AFTER = {"retry-after": "1"}
_TRY_LATER = (503, 507)

_encode = json.JSONEncoder(default=units.plain).encode


def status_of(error: TierfsError) -> int:
    """Return the status of an answer that is an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return data, or records, as an answer."""
    return Response(_encode(data), status, headers, JSON)


def error_answer(error: TierfsError, status: int | None = None, **more: Any) -> Response:
    """Return an error as an answer: `more`, its kind, what it says, and what to do."""
    data = {**more, "error": type(error).__name__, "message": str(error), "remedy": error.remedy}
    if isinstance(error, errors.OffsetMismatch):
        data["actual_length"] = error.actual_length
    if isinstance(error, errors.Unconfirmed):
        data["end"] = error.end
    status = status_of(error) if status is None else status
    return answer(data, status, _RETRY_AFTER if status in _TRY_LATER else None)


def refused(refusal: Refusal) -> ASGIApp:
    """Return what answers a request that the guard refused; its connection ends with it."""
    data = {"error": refusal.kind, "message": refusal.message, "remedy": None}
    response = answer(data, refusal.status, {"connection": "close"})
    response.raw_headers.extend(refusal.headers)
    return response


class Bodies:
    """Memory for the bodies of requests, shared by all of them."""

    def __init__(self, most_bytes: int, most_of_one: int) -> None:
        self._free = max(most_bytes, most_of_one)
        self._most_of_one = most_of_one
        self._freed = asyncio.Event()

    async def read(self, request: Request, most_bytes: int | None = None) -> bytearray:
        """Return the body, once there is room; `free` it with its length. The time is the protocol's.

        Raises InvalidRequest for one without a length, or one that is too long, before any of it is taken; Unavailable
        where the client leaves.
        """
        most = self._most_of_one if most_bytes is None else most_bytes
        size = units.decimal(request.headers.get("content-length", ""), most)
        if "transfer-encoding" in request.headers or (size is None and "content-length" not in request.headers):
            if most_bytes is None:
                raise InvalidRequest("an append needs a Content-Length", remedy="send bytes whose number is known")
            size = 0
        if size is None:
            raise InvalidRequest(f"the body is longer than {most} bytes", remedy="append in several requests")
        while self._free < size:
            self._freed.clear()
            await self._freed.wait()
        self._free -= size
        try:
            body, more = bytearray(), True
            while more:  # as Request.stream, whose generator costs as much as the parsing of a small append
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Unavailable("the client left in the middle of its body")
                body += message["body"]
                more = message["more_body"]
                if len(body) > size:
                    raise InvalidRequest("the body is longer than it was said to be")
        except BaseException:
            self.free(size)
            raise
        return body

    def free(self, size_bytes: int) -> None:
        """Give the room of a body back."""
        self._free += size_bytes
        self._freed.set()


def number(request: Request, name: str, most: int = units.MAX_BYTES) -> int | None:
    """Return a whole number among the parameters; None without it. Raises InvalidRequest for anything else."""
    text = parameter(request, name)
    if text is None:
        return None
    value = units.decimal(text, most)
    if value is None:
        raise InvalidRequest(f"{name} is not a whole number of at most {most}")
    return value


def flag(request: Request, name: str) -> bool:
    """Return a switch among the parameters; off without it. Raises InvalidRequest for what is none."""
    text = parameter(request, name)
    try:
        return text is not None and (text == "" or units.parse_flag(text))
    except ValueError as exc:
        raise InvalidRequest(f"{name} is {units.FLAGS}") from exc


def parameter(request: Request, name: str) -> str | None:
    """Return a parameter; None without it. Raises InvalidRequest for one that is given twice."""
    values = _parameters(request).getlist(name)
    if len(values) > 1:
        raise InvalidRequest(f"{name} is given twice")
    return values[0] if values else None


def only(request: Request, *known: str) -> None:
    """Raise InvalidRequest for a parameter that the resource does not have: a slip would change another thing."""
    unknown = sorted(set(_parameters(request)) - set(known))
    if unknown:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise InvalidRequest(f"parameter {unknown[0]!r} is not known here: {has}")


def _parameters(request: Request) -> QueryParams:
    return request.query_params if request.scope["query_string"] else _NONE
