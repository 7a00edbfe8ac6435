"""Logs that other hosts follow into this store: what it has of them, and their lines."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Iterator
from typing import Any

from tierfs.app.follow import beginnings, messages, places
from tierfs.app.follow.messages import Beginning, FollowRequest
from tierfs.app.follow.target import LogAppend
from tierfs.app.store import Store
from tierfs.base.words import names
from tierfs.base.words.errors import IsDirectory, TierfsError, unexpected
from tierfs.base.words.types import ByteRange
from tierfs.engine.metadata import directories, followed, tables
from tierfs.engine.metadata.tables import DIRECTORIES
from tierfs.engine.metadata.transaction import ReadTransaction
from tierfs.faces.admin.answers import error_data
from tierfs.faces.admin.appends import Appends


class Following:
    """The followed logs of one store. Its methods that are not async wait for a disk."""

    def __init__(self, store: Store, appends: Appends) -> None:
        self._store = store
        self._appends = appends

    def listed(self, path: str, after: str, limit: int) -> dict[str, Any]:
        """Return a page of the logs in and below a directory, or of one segment, and the sources of the directory."""
        with self._store.metadata.read() as txn:
            rows = sorted(name for name in followed.names_of(txn) if name > after and _is_in(name, path))
            page = [row for name in rows[:limit] if (row := _stream(txn, name)) is not None]
            following = rows[limit - 1] if len(rows) > limit else None
            return {"path": path, "streams": page, "sources": list(_sources(txn, path)), "next": following}

    def begun(self, new: Beginning, sender: str, into: str) -> int:
        """Record what a host begins to follow; return the time since which it does. Raises Conflict."""
        rows = beginnings.record(self._store, into, new.sources, new.first, new.at_ms, sender)
        return min(row.begun_ms for row in rows)

    async def appended(self, request: FollowRequest) -> list[dict[str, Any]]:
        """Append the lines of a request, queued at once and so in one commit; return the range or the error of each."""
        results = await asyncio.gather(*map(self._append, request.appends), return_exceptions=True)
        return [
            {"start": result[0].start, "end": result[0].end} if isinstance(result, tuple) else _failed(append, result)
            for append, result in zip(request.appends, results, strict=True)
        ]

    def _append(self, append: LogAppend) -> Awaitable[tuple[ByteRange, bool]]:
        return self._appends.append(append.segment, append.data, append.expected_offset, followed=append.followed)

    def places(self, request: FollowRequest) -> dict[str, Any]:
        """Return what the store has of each log that the host looks for, by its segment."""
        shown: dict[str, Any] = {}
        for segment, most_bytes in (request.looks or {}).items():
            try:
                shown[segment] = self._place(segment, most_bytes)
            except TierfsError as exc:
                shown[segment] = error_data(exc)
        return shown

    def _place(self, segment: str, most_bytes: int) -> dict[str, Any]:
        with self._store.metadata.read() as txn:
            data = messages.place_data(places.place_of(txn, segment))
        if most_bytes:
            last = places.last_bytes(self._store, segment, most_bytes)
            data["last_bytes"] = base64.b64encode(last).decode("ascii")
        return data


def _failed(append: LogAppend, result: BaseException) -> dict[str, Any]:
    if not isinstance(result, Exception):
        raise result
    return error_data(unexpected(result, names.printable(append.segment)))


def _stream(txn: ReadTransaction, name: str) -> dict[str, Any] | None:
    """Return a log; None where its name is a directory's now."""
    try:
        return {"segment": name, **messages.place_data(places.place_of(txn, name))}
    except IsDirectory:
        return None


def _sources(txn: ReadTransaction, path: str) -> Iterator[dict[str, Any]]:
    for row in followed.sources(txn):
        directory = txn.get(DIRECTORIES, tables.u64(row.directory_id))
        if directory is None:
            continue
        into = directories.path_of(txn, directory.parent_id, directory.name) if directory.name else ""
        if _is_in(into, path) and not names.is_removed(into):
            yield {
                "path": os.fsdecode(row.path),
                "below": row.below,
                "into": into,
                "sender": row.sender,
                "begun_ms": row.begun_ms,
                "background": row.background,
            }


def _is_in(name: str, path: str) -> bool:
    return not path or name == path or name.startswith(f"{path}/")
