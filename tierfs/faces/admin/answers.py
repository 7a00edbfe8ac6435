"""Answers: parameters of requests, records as JSON, and errors by what the caller should do."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tierfs.base.system.extras import MissingPackage
from tierfs.base.words import errors, json_data, names, units
from tierfs.base.words.errors import InvalidRequest, TierfsError
from tierfs.faces.admin.guard import Refusal

JSON = "application/json"

# RFC 9110, and RFC 4918 for 507. The first class that an error is an instance of counts.
_STATUS: tuple[tuple[type[TierfsError], int], ...] = (
    (errors.NotFound, 404),
    (errors.PermissionDenied, 403),
    (errors.NoColdTier, 409),
    (MissingPackage, 500),
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

_KEY_HEADER = "idempotency-key"
_KEY = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"|([!#-+\--~]+)')
_ESCAPED = re.compile(r"\\(.)")
_MOST_KEY_CHARACTERS = 255

_encode = json.JSONEncoder(default=json_data.plain).encode


class Refused(InvalidRequest):
    """A request for whose fault HTTP has a status of its own, and perhaps a header that says what is accepted."""

    def __init__(
        self, status: int, message: str, *, remedy: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        """Keep the status and the headers of the answer besides what it says."""
        super().__init__(message, remedy=remedy)
        self.status = status
        self.headers = headers


def status_of(error: TierfsError) -> int:
    """Return the status of an answer that is an error."""
    if isinstance(error, Refused):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return data, or records, as an answer."""
    return Response(_encode(data), status, headers, JSON)


def error_answer(error: TierfsError, status: int | None = None, **more: Any) -> Response:
    """Return an error as an answer, with `more`."""
    data = {**more, **error_data(error)}
    status = status_of(error) if status is None else status
    if isinstance(error, Refused):
        return answer(data, status, error.headers)
    return answer(data, status, _RETRY_AFTER if status in _TRY_LATER else None)


def error_data(error: TierfsError) -> dict[str, Any]:
    """Return an error as JSON data: its kind, what it says, and what to do."""
    kind = InvalidRequest if isinstance(error, Refused) else type(error)
    data: dict[str, Any] = {"error": kind.__name__, "message": str(error), "remedy": error.remedy}
    if isinstance(error, errors.OffsetMismatch):
        data["actual_length"] = error.actual_length
    if isinstance(error, errors.Unconfirmed):
        data["end"] = error.end
    return data


def refused(refusal: Refusal) -> ASGIApp:
    """Return what answers a request that the guard refused; its connection ends with it."""
    data = {"error": refusal.kind, "message": refusal.message, "remedy": refusal.remedy}
    response = answer(data, refusal.status, {"connection": "close"})
    response.raw_headers.extend(refusal.headers)
    return response


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
        raise InvalidRequest(f"{name} must be {units.FLAGS}") from exc


def parameter(request: Request, name: str) -> str | None:
    """Return a parameter; None without it. Raises InvalidRequest for one that is given twice."""
    values = _parameters(request).getlist(name)
    if len(values) > 1:
        raise InvalidRequest(f"{name} is given twice")
    return values[0] if values else None


def name_after(request: Request, name: str) -> str:
    """Return the name in a directory after which a page of its listing begins; empty without one.

    Raises InvalidRequest for a text that is longer than any name.
    """
    text = parameter(request, name) or ""
    if len(text.encode()) > names.MAX_COMPONENT_BYTES:
        raise InvalidRequest(f"{name} is not a name: it is longer than {names.MAX_COMPONENT_BYTES} bytes")
    return text


def idempotency_key(request: Request) -> str | None:
    """Return the key under which a request may be repeated; None without one. Raises InvalidRequest for an invalid one.

    It is a String of RFC 9651, as in draft-ietf-httpapi-idempotency-key-header, or the same without quotes.
    """
    values = request.headers.getlist(_KEY_HEADER)
    if not values:
        return None
    match = _KEY.fullmatch(values[0].strip(" \t"))
    key = "" if match is None else _ESCAPED.sub(r"\1", match[1]) if match[2] is None else match[2]
    if len(values) > 1 or not 0 < len(key) <= _MOST_KEY_CHARACTERS:
        raise InvalidRequest(
            f'Idempotency-Key must be one string of 1 to {_MOST_KEY_CHARACTERS} ASCII characters, like "8e03978e-40d5"'
        )
    return key


def only(request: Request, *known: str) -> None:
    """Raise InvalidRequest for a parameter that the resource does not have: a slip would change another thing."""
    unknown = sorted(set(_parameters(request)) - set(known))
    if unknown:
        has = f"known: {', '.join(known)}" if known else "it takes no parameters"
        raise InvalidRequest(f"unknown parameter {unknown[0]!r}: {has}")


def _parameters(request: Request) -> QueryParams:
    return request.query_params if request.scope["query_string"] else _NONE
