"""Requests: work that other processes ask of the store's holder, as rows it carries out in order.

The asking process writes a row, the holder takes it and fills it in, and the asker removes it. The row of a holder that
died meanwhile is taken again by the next one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tierfs.errors import NotFound, TierfsError
from tierfs.metadata import tables
from tierfs.metadata.records import RequestRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import REQUESTS
from tierfs.metadata.transaction import ReadTransaction
from tierfs.types import RequestState

if TYPE_CHECKING:
    from tierfs.parallel import Progress

_KEPT_FINISHED = 100
"""Rows whose asker ended without looking; the oldest go first."""


def submit(metadata: MetadataStore, verb: str, path: str, options: Mapping[str, str]) -> int:
    """Ask for `verb` on `path`; return the request's id. Raises Fenced in a store that may only be read."""
    with metadata.write() as txn:
        number = txn.store.next_request
        txn.update_store(next_request=number + 1)
        asked = RequestRecord(id=number, verb=verb, path=path, options=options, created_ms=txn.now_ms)
        txn.put(REQUESTS, tables.u64(number), asked)
        return number


def get(metadata: MetadataStore, number: int) -> RequestRecord:
    """Return a request as it stands. Raises NotFound when it was withdrawn."""
    with metadata.read() as txn:
        return txn.must_get(REQUESTS, tables.u64(number), f"request {number}")


def withdraw(metadata: MetadataStore, number: int) -> None:
    """Remove a request; a holder that works on it continues. Idempotent."""
    with metadata.write_notes() as txn:
        txn.delete(REQUESTS.name, tables.u64(number))


def take_next(metadata: MetadataStore) -> RequestRecord | None:
    """Mark the oldest request that waits as running and return it; None when there is none."""
    with metadata.read() as txn:
        if _first_waiting(txn) is None:
            return None
    with metadata.write_notes() as writer:
        row = _first_waiting(writer)
        if row is not None:
            writer.put(REQUESTS, tables.u64(row.id), replace(row, state=RequestState.RUNNING))
        return row


def restart(metadata: MetadataStore) -> int:
    """Let the requests that a dead holder was working on wait again; return how many. For a new holder."""
    with metadata.write_notes() as txn:
        running = [row for _, row in txn.scan(REQUESTS) if row.state is RequestState.RUNNING]
        for row in running:
            txn.put(REQUESTS, tables.u64(row.id), replace(row, state=RequestState.WAITING))
        return len(running)


def show_progress(metadata: MetadataStore, number: int, progress: Progress) -> None:
    """Write down the progress of a request."""
    _change(metadata, number, done_bytes=progress.done_bytes, total_bytes=progress.total_bytes, item=progress.item)


def finish(metadata: MetadataStore, number: int, result: Mapping[str, Any]) -> None:
    """Write down the result of a request."""
    _change(metadata, number, state=RequestState.DONE, result=json.dumps(result))


def fail(metadata: MetadataStore, number: int, error: TierfsError) -> None:
    """Write down the error of a request."""
    _change(
        metadata,
        number,
        state=RequestState.FAILED,
        error_kind=type(error).__name__,
        error=str(error),
        remedy=error.remedy or "",
    )


def unfinished(txn: ReadTransaction) -> list[RequestRecord]:
    """Return the requests that wait or run, oldest first."""
    return [row for _, row in txn.scan(REQUESTS) if row.state in (RequestState.WAITING, RequestState.RUNNING)]


def _first_waiting(txn: ReadTransaction) -> RequestRecord | None:
    return next((row for _, row in txn.scan(REQUESTS) if row.state is RequestState.WAITING), None)


def _change(metadata: MetadataStore, number: int, **changes: Any) -> None:
    """Change a row unless it is gone, as when its asker withdrew it."""
    with metadata.write_notes() as txn:
        try:
            row = txn.must_get(REQUESTS, tables.u64(number), "request")
        except NotFound:
            return
        txn.put(REQUESTS, tables.u64(number), replace(row, **changes))
        finished = [key for key, row in txn.scan(REQUESTS) if row.state in (RequestState.DONE, RequestState.FAILED)]
        for key in finished[:-_KEPT_FINISHED]:
            txn.delete(REQUESTS.name, key)
