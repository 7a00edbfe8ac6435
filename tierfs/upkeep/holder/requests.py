"""Requests: work that processes ask of the one that holds the store, or a disk cache, as rows it carries out in order.

The asking process writes a row, the server takes it and fills it in, and the asker removes it. The row of a server that
died meanwhile is taken again by the next one, or the asker does the work itself.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

from tierfs.base.bytes.progress import OnProgress, Progress
from tierfs.base.words import errors
from tierfs.base.words.errors import NotFound, TierfsError, unexpected
from tierfs.base.words.types import RequestState
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.holder_records import RequestRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import REQUESTS
from tierfs.engine.metadata.transaction import ReadTransaction

log = logging.getLogger(__name__)

R = TypeVar("R")

# The verb that the process with a disk cache serves; all others are the store's holder's.
WARM_UP = "warmup"

# Shorter than people notice, and a poll costs microseconds.
_POLL_S = 0.1

# A server looks for requests every 0.2 s: one that begins none for so long is named.
ANSWER_S = 5.0

# A server at work may report nothing for a while, as gc does, and an offload whose cold tier is away (a guess).
PROGRESS_S = 60.0

# Each report is a durable commit.
_REPORT_EVERY_S = 0.25

# Rows whose asker ended without looking; the oldest go first.
_KEPT_FINISHED = 100

# Whether a server carries out a request.
Takes = Callable[[RequestRecord], bool]


def submit(metadata: MetadataStore, verb: str, path: str, options: Mapping[str, str]) -> int:
    """Ask for `verb` on `path`; return the request's id.

    Raises Fenced for read-only stores, except for warm-ups.
    """
    with metadata.write_notes() if verb == WARM_UP else metadata.write() as txn:
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


def wait_for(
    metadata: MetadataStore,
    number: int,
    result: Callable[..., R],
    report: OnProgress,
    do_it_here: Callable[[], R],
    held: type[Exception],
    is_stopped: Callable[[], bool] = lambda: False,
) -> R:
    """Return the result of a request, made of its fields, and remove the row. Raises what the work raises.

    The server may be gone, or serve no requests: so `do_it_here` is tried now and then; it raises `held`, which names
    the process, while another one holds what it needs. A server that does not answer is named in a warning, once;
    `is_stopped` tells one that was stopped from one at work.
    """
    silence = _Silence(metadata, number, is_stopped)
    try:
        while True:
            row = get(metadata, number)
            if row.state is RequestState.FAILED:
                raise errors.named(row.error_kind)(row.error, remedy=row.remedy or None)
            if row.state is RequestState.DONE:
                return result(**json.loads(row.result))
            if row.state is RequestState.RUNNING:
                report(_progress(row))
            time.sleep(_POLL_S)
            try:
                return do_it_here()
            except held as exc:
                silence.check(exc)
    finally:
        withdraw(metadata, number)


class _Silence:
    """Warns once when the serving process stops making progress."""

    def __init__(self, metadata: MetadataStore, number: int, is_stopped: Callable[[], bool]) -> None:
        self._metadata = metadata
        self._number = number
        self._is_stopped = is_stopped
        self._last: list[RequestRecord] = []
        self._since_s = time.monotonic()
        self._told = False

    def check(self, held: Exception) -> None:
        """Warn, once, unless the request or the one before it has changed lately."""
        with self._metadata.read() as txn:
            rows = [row for row in unfinished(txn) if row.id == self._number or row.state is RequestState.RUNNING]
        now_s = time.monotonic()  # of the machine, as the pauses between the looks
        if rows != self._last:
            self._last, self._since_s = rows, now_s
        silent_s = now_s - self._since_s
        working = any(row.state is RequestState.RUNNING for row in rows)
        if self._told or silent_s < ANSWER_S or (working and silent_s < PROGRESS_S and not self._is_stopped()):
            return
        self._told = True
        log.warning("%s; no response for %.0f s; still waiting", held, silent_s)


def take_next(metadata: MetadataStore, takes: Takes) -> RequestRecord | None:
    """Mark the oldest request that waits for this server as running and return it; None when there is none."""
    with metadata.read() as txn:
        if not _in_state(txn, RequestState.WAITING, takes):
            return None
    with metadata.write_notes() as writer:
        for row in _in_state(writer, RequestState.WAITING, takes)[:1]:
            writer.put(REQUESTS, tables.u64(row.id), replace(row, state=RequestState.RUNNING))
            return row
    return None


def restart(metadata: MetadataStore, takes: Takes) -> int:
    """Let the requests that a dead server was working on wait again; return how many. For a new server."""
    with metadata.read() as txn:
        if not _in_state(txn, RequestState.RUNNING, takes):
            return 0
    with metadata.write_notes() as writer:
        running = _in_state(writer, RequestState.RUNNING, takes)
        for row in running:
            writer.put(REQUESTS, tables.u64(row.id), replace(row, state=RequestState.WAITING))
        return len(running)


def show_progress(metadata: MetadataStore, number: int, progress: Progress) -> None:
    """Write down the progress of a request."""
    _change(metadata, number, **{field.name: getattr(progress, field.name) for field in fields(Progress)})


def _progress(row: RequestRecord) -> Progress:
    return Progress(**{field.name: getattr(row, field.name) for field in fields(Progress)})


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


def _in_state(txn: ReadTransaction, state: RequestState, takes: Takes) -> list[RequestRecord]:
    return [row for _, row in txn.scan(REQUESTS) if row.state is state and takes(row)]


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


class RequestServer:
    """Carries out the requests of other processes, with progress and result in the row. Called in threads."""

    def __init__(
        self, metadata: MetadataStore, takes: Takes, carry_out: Callable[[RequestRecord, OnProgress], Any]
    ) -> None:
        """`carry_out` does what a row that the server `takes` asks for; it returns a dataclass."""
        self._metadata = metadata
        self._takes = takes
        self._do = carry_out
        self._seen_transaction = -1
        self._left_running = True
        """Whether rows may run that nobody works on: a dead server's, or one whose end could not be written down."""

    @property
    def may_have_next(self) -> bool:
        """Whether anything was committed since the last look found no request; costs microseconds."""
        return self._left_running or self._metadata.last_transaction_id() != self._seen_transaction

    def next(self) -> RequestRecord | None:
        """Return the next request, now running. Raises what writing that down raises."""
        if self._left_running:
            restart(self._metadata, self._takes)
        # A commit that fails may have happened: until the row is here, it may run with nobody at work on it.
        self._left_running = True
        newest = self._metadata.last_transaction_id()
        row = take_next(self._metadata, self._takes)
        self._left_running = False
        if row is None:
            self._seen_transaction = newest
        return row

    def carry_out(self, request: RequestRecord) -> None:
        """Do it and write down the result or the error. Raises what writing it raises."""
        log.info("request %d: %s %s", request.id, request.verb, request.path)
        self._left_running = True
        try:
            result = self._do(request, self._reporter(request.id))
        except Exception as exc:
            fail(self._metadata, request.id, unexpected(exc, request.verb))
        else:
            finish(self._metadata, request.id, asdict(result))
        self._left_running = False

    def serve(self) -> None:
        """Carry out the requests there are. Raises what reading or writing the rows raises."""
        while (request := self.next()) is not None:
            self.carry_out(request)

    def _reporter(self, number: int) -> OnProgress:
        clock = self._metadata.clock
        last_s = clock.monotonic_s()

        def report(progress: Progress) -> None:
            nonlocal last_s
            if clock.monotonic_s() - last_s >= _REPORT_EVERY_S:
                last_s = clock.monotonic_s()
                show_progress(self._metadata, number, progress)

        return report
