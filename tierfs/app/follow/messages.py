"""Messages between a sender of followed logs and the admin API of another host: JSON, then the lines themselves.

A request is one line of JSON and the bytes of all its appends, one after the other. Its names are below the directory
in its URL. The server trusts nothing in it: docs/admin.md describes the fields.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from typing import Any

from tierfs.app.follow.sources import LogSource
from tierfs.app.follow.target import LogAppend, LogPlace
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import names
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB
from tierfs.engine.metadata.followed_range import MAX_PROOF_BYTES, FollowedRange

_U64 = 2**64 - 1
_U32 = 2**32 - 1
_MOST_TEXT = 4096
_MOST_SENDER = 128

# The last bytes of one segment, of which a request may have one: an entry of the journal of systemd is shorter.
MOST_LAST_BYTES = MIB

_OWN = ("version", "stored")
_NOT_SENT = (*_OWN, "sender")


@dataclass(frozen=True, slots=True)
class Beginning:
    """The sources that a host begins to follow, and their first files by segment."""

    at_ms: int
    sources: tuple[LogSource, ...]
    first: tuple[tuple[str, FollowedRange], ...]


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """A request: all that is given is done, in this order."""

    sender: str
    beginning: Beginning | None = None
    appends: tuple[LogAppend, ...] = ()
    looks: Mapping[str, int] | None = None
    """Segments whose places are wanted, each with the number of its last bytes that are wanted too."""


def request_bytes(request: FollowRequest, into: str) -> bytes:
    """Return the body of a request."""
    head: dict[str, Any] = {"sender": request.sender}
    if request.beginning is not None:
        begun = request.beginning
        head["start"] = {
            "at_ms": begun.at_ms,
            "sources": [{"path": each.path, "below": each.below} for each in begun.sources],
            "files": [{"name": _below(into, name), "range": range_data(row)} for name, row in begun.first],
        }
    head["appends"] = [
        {
            "name": _below(into, each.segment),
            "expect_offset": each.expected_offset,
            "length": len(each.data),
            "range": range_data(each.followed),
        }
        for each in request.appends
    ]
    head["looks"] = {_below(into, name): size for name, size in (request.looks or {}).items()}
    return b"".join([json.dumps(head).encode(), b"\n", *(each.data for each in request.appends)])


def parse_request(body: bytearray, into: str) -> FollowRequest:
    """Return the request in a body. Raises InvalidRequest for anything that is not one."""
    end = body.find(b"\n") + 1
    try:
        head = json.loads(bytes(body[:end]))
    except (ValueError, RecursionError) as exc:
        raise InvalidRequest("the body does not start with a line of JSON") from exc
    if not isinstance(head, dict) or set(head) - {"sender", "start", "appends", "looks"}:
        raise InvalidRequest("the line of JSON has other fields than sender, start, appends and looks")
    sender = checked_sender(head.get("sender"))
    view, at = memoryview(body), end
    appends: list[LogAppend] = []
    for each in _list(head.get("appends", [])):
        length = _number(each, "length", len(body) - at)
        data = view[at : at + length]
        row = _range(each.get("range"), sender)
        # An append may begin with the end of a line that its file lacks.
        if not length - 1 <= row.file_end - row.file_start <= length:
            raise InvalidRequest("the range of a file is not as long as its lines")
        appends.append(LogAppend(_name(into, each), data, _number(each, "expect_offset"), row))
        at += length
    if at != len(body):
        raise InvalidRequest("the body is longer than its appends")
    if len({each.segment for each in appends}) < len(appends):
        raise InvalidRequest("a request has two appends to one segment")
    begun = head.get("start")
    beginning = None if begun is None else _beginning(begun, into, sender)
    return FollowRequest(sender, beginning, tuple(appends), _looks(head.get("looks", {}), into))


def checked_sender(sender: object) -> str:
    """Return the name of a sender. Raises InvalidRequest for one that cannot be."""
    if not isinstance(sender, str) or not 0 < len(sender) <= _MOST_SENDER or not sender.isprintable() or " " in sender:
        raise InvalidRequest(f"a sender is a name of 1 to {_MOST_SENDER} characters without blanks")
    return sender


def range_data(row: FollowedRange) -> dict[str, Any]:
    """Return a range as JSON data, without the fields that are zero or empty."""
    data = {field.name: getattr(row, field.name) for field in fields_of(row) if field.name not in _OWN}
    return {name: os.fsdecode(value) if name == "path" else value for name, value in data.items() if value}


def place_data(place: LogPlace) -> dict[str, Any]:
    """Return a place as JSON data."""
    return {
        "start_offset": place.start_offset,
        "length": place.length,
        "ranges": [range_data(row) for row in place.ranges],
    }


def place_of_data(data: Any) -> LogPlace:
    """Return the place in an answer. Raises InvalidRequest for anything else."""
    given = _dict(data)
    rows = [_range(row, str(_dict(row).get("sender", ""))) for row in _list(given.get("ranges"))]
    return LogPlace(tuple(rows), _number(given, "length"), _number(given, "start_offset"))


def _below(into: str, name: str) -> str:
    return name.removeprefix(f"{into}/") if into else name


def _name(into: str, given: Mapping[str, Any]) -> str:
    return _joined(into, given.get("name"))


def _joined(into: str, name: object) -> str:
    if not isinstance(name, str) or not name.strip("/"):
        raise InvalidRequest("a log has no name")
    joined = names.join(names.split(f"{into}/{name}"))
    names.require_unreserved(joined)
    return joined


def _beginning(data: Any, into: str, sender: str) -> Beginning:
    given = _dict(data)
    sources = tuple(
        LogSource(os.fsdecode(_path(each.get("path"))), "", (), _text(each, "below"))
        for each in _list(given.get("sources"))
    )
    if not sources:
        raise InvalidRequest("start has no source")
    first = tuple((_name(into, each), _range(each.get("range"), sender)) for each in _list(given.get("files", [])))
    return Beginning(_number(given, "at_ms"), sources, first)


def _looks(data: Any, into: str) -> dict[str, int]:
    looks = {
        _joined(into, name): _number({"size": size}, "size", MOST_LAST_BYTES) for name, size in _dict(data).items()
    }
    if sum(map(bool, looks.values())) > 1:
        raise InvalidRequest("a request may want the last bytes of one segment only")
    return looks


def _range(data: Any, sender: str) -> FollowedRange:
    """Return a range that another host sent. Raises InvalidRequest for one that no host can have."""
    given = _dict(data)
    known = {field.name: field.type for field in fields_of(FollowedRange) if field.name not in _NOT_SENT}
    values: dict[str, Any] = {"path": _path(given.get("path"))}
    for name, kind in known.items():
        if name == "path" or name not in given:
            continue
        if kind == "str":
            values[name] = _text(given, name)
        elif kind == "bool":
            values[name] = given[name] is True
        else:
            values[name] = _number(given, name, _U32 if name.endswith("crc32c") else _U64)
    row = FollowedRange(**values, sender=sender)
    if row.file_start > row.file_end or row.tail_length > row.file_end:
        raise InvalidRequest("the range of a file is reversed, or shorter than its tail")
    if max(row.head_length, row.tail_length) > MAX_PROOF_BYTES:
        raise InvalidRequest(f"head and tail of a file have at most {MAX_PROOF_BYTES} bytes")
    return row


def _path(path: object) -> bytes:
    if not isinstance(path, str) or not 0 < len(path) <= _MOST_TEXT:
        raise InvalidRequest(f"a file has no path of 1 to {_MOST_TEXT} characters")
    try:
        return os.fsencode(path)
    except UnicodeEncodeError as exc:
        raise InvalidRequest("invalid path of a file") from exc


def _dict(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidRequest("an object is missing")
    return data


def _list(data: Any) -> Sequence[dict[str, Any]]:
    if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
        raise InvalidRequest("a list of objects is missing")
    return data


def _text(given: Mapping[str, Any], name: str) -> str:
    text = given.get(name, "")
    is_text = isinstance(text, str) and len(text) <= _MOST_TEXT
    # Half of a surrogate pair can be in no row: it would fail the commit of other senders too.
    if not is_text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequest(f"{name} is not a text of at most {_MOST_TEXT} characters")
    return str(text)


def _number(given: Mapping[str, Any], name: str, most: int = _U64) -> int:
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidRequest(f"{name} is not a whole number of at most {most}")
    return value
