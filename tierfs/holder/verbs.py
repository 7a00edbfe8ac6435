"""The table of cold verbs, all that a command may ask of the store's holder, and their performance.

A new verb is one row here, with its work in ColdWork, and the command that performs it. Names, options and the fields
of results are written to request rows, which a holder of another version reads: they never change.

`perform` does a verb here when no process holds the store, else it lets the holder do it (RequestServer), with the same
result or error. A holder that dies meanwhile is no failure: the next one takes the request, or this process does the
work itself.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Generic, Protocol, TypeVar

from tierfs import errors
from tierfs.backup.restore import SegmentRestored
from tierfs.clock import Clock
from tierfs.errors import Conflict, InvalidRequest, TierfsError, Unavailable
from tierfs.garbage.collect import Collected
from tierfs.holder import lock, requests
from tierfs.holder.lock import HeldElsewhere
from tierfs.holder.work import ColdWork, EvictReport
from tierfs.metadata import directories
from tierfs.metadata.records import RequestRecord
from tierfs.metadata.store import MetadataStore
from tierfs.parallel import OnProgress, Progress, unseen
from tierfs.segments.positions import Position
from tierfs.store_paths import StorePaths
from tierfs.tiering.consolidate_command import ConsolidateReport
from tierfs.tiering.ledgers.managed import PrefixOffloaded
from tierfs.tiering.offload_command import OffloadReport
from tierfs.types import RequestState

R = TypeVar("R")

Options = Mapping[str, str]
"""A flag is an option with any value."""

ACCEPT_LOSS = "accept_loss"
"""Flag of load."""

BEFORE = "before"
"""Option of offload-prefix: a position; without it every closed ledger."""

DRY_RUN = "dry_run"
"""Flag of consolidate and evict. It changes nothing and needs no lock, so no request has it."""

FORCE = "force"
"""Flag of evict."""

GRACE_S = "grace_s"
"""Option of gc, required: the age of an orphan in seconds."""


@dataclass(frozen=True, slots=True)
class Verb(Generic[R]):
    """One verb."""

    name: str
    """In request rows."""
    run: Callable[[ColdWork, str, Options, OnProgress], R]
    """Do it below a path, as the holder; the report is called now and then."""
    result: Callable[..., R]
    """Make the result of its fields: the dataclass itself."""
    uploads: bool = False
    """It uploads in parallel, so the background writer pauses its own uploads."""


OFFLOAD = Verb("offload", lambda work, path, _, report: work.offload(path, report), OffloadReport, uploads=True)

OFFLOAD_PREFIX = Verb(
    "offload-prefix",
    lambda work, path, options, report: work.offload_prefix(path, _position(options.get(BEFORE)), report),
    PrefixOffloaded,
    uploads=True,
)

CONSOLIDATE = Verb(
    "consolidate",
    lambda work, path, options, report: work.consolidate(path, dry_run=DRY_RUN in options, report=report),
    ConsolidateReport,
)

EVICT = Verb(
    "evict",
    lambda work, path, options, report: work.evict(
        path, force=FORCE in options, dry_run=DRY_RUN in options, report=report
    ),
    EvictReport,
)

LOAD = Verb(
    "load",
    lambda work, path, options, report: work.load_segment(path, accept_loss=ACCEPT_LOSS in options, report=report),
    SegmentRestored,
)

COLLECT = Verb("gc", lambda work, _, options, __: work.collect_all(grace_s=int(options[GRACE_S])), Collected)

VERBS: Mapping[str, Verb[Any]] = {
    verb.name: verb for verb in (OFFLOAD, OFFLOAD_PREFIX, CONSOLIDATE, EVICT, LOAD, COLLECT)
}


def flags(wanted: Mapping[str, bool]) -> Options:
    """Return the options that set those flags which are true."""
    return {name: "1" for name, value in wanted.items() if value}


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)


log = logging.getLogger(__name__)


_POLL_S = 0.1
"""Shorter than people notice, and a poll costs microseconds."""

_REPORT_EVERY_S = 0.25
"""Each report is a durable commit."""

_NO_OPTIONS: Options = {}


class OpenStore(Protocol):
    """The part of an open store that a verb needs."""

    paths: StorePaths
    clock: Clock
    metadata: MetadataStore

    def cold_work(self, what: str) -> ColdWork:
        """Return the cold work of the store's holder. Raises Unavailable, naming `what`, without a cold tier."""


@contextmanager
def holding(store: OpenStore, what: str) -> Iterator[ColdWork]:
    """Hold the store inside the block, and resolve first what a crash left.

    Raises HeldElsewhere naming the present holder, and Unavailable naming `what` without a cold tier.
    """
    work = store.cold_work(what)
    with lock.hold(store.paths.holder, store.clock):
        work.resolve_crashed()
        yield work


def perform(
    store: OpenStore, verb: Verb[R], path: str, options: Options = _NO_OPTIONS, report: OnProgress = unseen
) -> R:
    """Do `verb` below `path`, here or by the holder, and wait for it. Raises what the work raises.

    Raises Unavailable without a cold tier.
    """
    if DRY_RUN in options:
        return verb.run(store.cold_work(verb.name), path, options, report)
    try:
        return _do_it_here(store, verb, path, options, report)
    except HeldElsewhere:
        number = requests.submit(store.metadata, verb.name, path, options)
    try:
        while True:
            row = requests.get(store.metadata, number)
            if row.state in (RequestState.DONE, RequestState.FAILED):
                return verb.result(**_answer(row))
            if row.state is RequestState.RUNNING:
                report(Progress(row.done_bytes, row.total_bytes, row.item))
            time.sleep(_POLL_S)
            with suppress(HeldElsewhere):  # the holder may be gone, or be a command that serves no requests
                return _do_it_here(store, verb, path, options, report)
    finally:
        requests.withdraw(store.metadata, number)


def request(store: OpenStore, verb: Verb[Any], path: str, options: Options = _NO_OPTIONS) -> int:
    """Ask the holder for `verb` below `path` and do not wait; return the request's number.

    Raises Conflict when no process holds the store, NotFound for a missing path.
    """
    if lock.current(store.paths.holder) is None:
        raise Conflict("no process holds the store, so none would carry it out", remedy="leave out --no-wait")
    with store.metadata.read() as txn:
        directories.must_find(txn, path)
    return requests.submit(store.metadata, verb.name, path, options)


def _do_it_here(store: OpenStore, verb: Verb[R], path: str, options: Options, report: OnProgress) -> R:
    with holding(store, verb.name) as work:
        return verb.run(work, path, options, report)


def _answer(row: RequestRecord) -> Mapping[str, Any]:
    if row.state is RequestState.FAILED:
        raise errors.named(row.error_kind)(row.error, remedy=row.remedy or None)
    result: dict[str, Any] = json.loads(row.result)
    return result


class RequestServer:
    """Carries out the requests of other processes, with progress and result in the row. Called in threads."""

    def __init__(self, metadata: MetadataStore, work: ColdWork) -> None:
        self._metadata = metadata
        self._work = work
        self._seen_transaction = -1
        self._left_running = False
        """Whether a request's end could not be written, as on a full disk: it is done again."""

    @property
    def may_have_next(self) -> bool:
        """Whether anything was committed since the last look found no request; costs microseconds."""
        return self._left_running or self._metadata.last_transaction_id() != self._seen_transaction

    def next(self) -> RequestRecord | None:
        """Return the next request, now running. Raises what writing that down raises."""
        if self._left_running:
            requests.restart(self._metadata)
            self._left_running = False
        newest = self._metadata.last_transaction_id()
        row = requests.take_next(self._metadata)
        if row is None:
            self._seen_transaction = newest
        return row

    def uploads(self, request: RequestRecord) -> bool:
        """Return whether a request uploads by itself, so that the background writer pauses its own uploads."""
        return request.verb in VERBS and VERBS[request.verb].uploads

    def carry_out(self, request: RequestRecord) -> None:
        """Do it and write down the result or the error. Raises what writing it raises."""
        log.info("request %d: %s %s", request.id, request.verb, request.path)
        self._left_running = True
        try:
            result = self._do(request)
        except TierfsError as exc:
            requests.fail(self._metadata, request.id, exc)
        except Exception as exc:
            log.exception("request %d failed unexpectedly", request.id)
            requests.fail(self._metadata, request.id, Unavailable(f"{request.verb} failed: {exc}"))
        else:
            requests.finish(self._metadata, request.id, asdict(result))
        self._left_running = False

    def _do(self, request: RequestRecord) -> Any:
        verb = VERBS.get(request.verb)
        if verb is None:
            raise InvalidRequest(f"the store's holder does not know {request.verb!r}", remedy="restart the holder")
        return verb.run(self._work, request.path, request.options, self._reporter(request.id))

    def _reporter(self, number: int) -> OnProgress:
        clock = self._metadata.clock
        last_s = clock.monotonic_s()

        def report(progress: Progress) -> None:
            nonlocal last_s
            if clock.monotonic_s() - last_s >= _REPORT_EVERY_S:
                last_s = clock.monotonic_s()
                requests.show_progress(self._metadata, number, progress)

        return report
