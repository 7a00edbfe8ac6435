"""The table of cold verbs, all that a command may ask of the store's holder, and their performance.

A new verb is one row here, with its work in ColdWork, and the command that performs it. Names, options and the fields
of results are written to request rows, which a holder of another version reads: they never change.

`perform` does a verb here when no process holds the store, else it lets the holder do it (`server`), with the same
result or error. A holder that dies meanwhile is no failure: the next one takes the request, or this process does the
work itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.system import processes
from tierfs.base.system.clock import Clock
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import Conflict, InvalidRequest
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.holder_records import RequestRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.engine.segments.positions import Position
from tierfs.tiering.backup.segment import SegmentRestored
from tierfs.tiering.consolidate_command import ConsolidateReport
from tierfs.tiering.garbage.collect import Collected
from tierfs.tiering.ledgers.managed import PrefixOffloaded
from tierfs.tiering.offload_command import OffloadReport
from tierfs.tiering.part import MovedPart
from tierfs.upkeep.holder import lock, requests
from tierfs.upkeep.holder.lock import HeldElsewhere
from tierfs.upkeep.holder.requests import RequestServer
from tierfs.upkeep.holder.switch import Switched
from tierfs.upkeep.holder.work import ColdWork, EvictReport

R = TypeVar("R")

# A flag is an option with any value.
Options = Mapping[str, str]

# Flag of load.
ACCEPT_LOSS = "accept_loss"

# Option of a ledger's offload: a position; without it every closed ledger.
BEFORE = "before"

# Options of a part: an offset of a segment, and the newest bytes that stay.
BEFORE_OFFSET, KEEP = "before_offset", "keep"

# Flag of consolidate and evict. It changes nothing and needs no lock, so no request has it.
DRY_RUN = "dry_run"

# Flag of evict.
FORCE = "force"

# Option of switch, required: the record of the place, encoded, in hexadecimal digits.
PLACE = "place"

# Option of gc, required: the age of an orphan in seconds.
GRACE_S = "grace_s"


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
    "ledger offload",
    lambda work, path, options, report: work.offload_prefix(path, _position(options.get(BEFORE)), report),
    PrefixOffloaded,
    uploads=True,
)

# By a name of its own: an older holder would move everything.
OFFLOAD_PART = Verb(
    "offload part",
    lambda work, path, options, report: work.offload(path, report, _part(options)),
    OffloadReport,
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

EVICT_PART = Verb(
    "evict part",
    lambda work, path, options, report: work.evict(
        path, force=FORCE in options, dry_run=DRY_RUN in options, report=report, part=_part(options)
    ),
    EvictReport,
)

LOAD = Verb(
    "load",
    lambda work, path, options, report: work.load_segment(path, accept_loss=ACCEPT_LOSS in options, report=report),
    SegmentRestored,
)

SWITCH = Verb(
    "switch",
    lambda work, _, options, report: work.switch(LOCATIONS.codec.decode(bytes.fromhex(options[PLACE])), report),
    Switched,
    uploads=True,
)

COLLECT = Verb(
    "gc", lambda work, _, options, report: work.collect_all(grace_s=int(options[GRACE_S]), report=report), Collected
)

VERBS: Mapping[str, Verb[Any]] = {
    verb.name: verb
    for verb in (OFFLOAD, OFFLOAD_PREFIX, OFFLOAD_PART, CONSOLIDATE, EVICT, EVICT_PART, LOAD, SWITCH, COLLECT)
}


def flags(wanted: Mapping[str, bool]) -> Options:
    """Return the options that set those flags which are true."""
    return {name: "1" for name, value in wanted.items() if value}


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)


def _part(options: Options) -> MovedPart:
    before = options.get(BEFORE_OFFSET)
    return MovedPart(None if before is None else int(before), int(options.get(KEEP, "0")))


_NO_OPTIONS: Options = {}


class OpenStore(Protocol):
    """The part of an open store that a verb needs."""

    paths: StorePaths
    clock: Clock
    metadata: MetadataStore

    def cold_work(self, what: str) -> ColdWork:
        """Return the cold work of the store's holder. Raises NoColdTier, naming `what`."""


@contextmanager
def holding(store: OpenStore, what: str) -> Iterator[ColdWork]:
    """Hold the store inside the block, and resolve first what a crash left.

    Raises HeldElsewhere naming the present holder, and NoColdTier naming `what`.
    """
    work = store.cold_work(what)
    with lock.hold(store.paths.holder, store.clock):
        work.resolve_crashed()
        yield work


def perform(
    store: OpenStore, verb: Verb[R], path: str, options: Options = _NO_OPTIONS, report: OnProgress = unseen
) -> R:
    """Do `verb` below `path`, here or by the holder, and wait for it. Raises what the work raises.

    Raises NoColdTier.
    """
    if DRY_RUN in options:
        return verb.run(store.cold_work(verb.name), path, options, report)
    do_it_here = partial(_do_it_here, store, verb, path, options, report)
    try:
        return do_it_here()
    except HeldElsewhere:
        number = requests.submit(store.metadata, verb.name, path, options)
    is_stopped = partial(_is_stopped, store)
    return requests.wait_for(store.metadata, number, verb.result, report, do_it_here, HeldElsewhere, is_stopped)


def _is_stopped(store: OpenStore) -> bool:
    holder = lock.current(store.paths.holder)
    return holder is not None and processes.is_stopped(holder.pid)


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


def uploads(request: RequestRecord) -> bool:
    """Return whether a request uploads by itself, so that the background writer pauses its own uploads."""
    return request.verb in VERBS and VERBS[request.verb].uploads


def server(work: ColdWork) -> RequestServer:
    """Return what carries out verbs in the holder; it answers one that it does not know with InvalidRequest."""

    def takes(request: RequestRecord) -> bool:
        # With another address by now this holder is about to begin anew, and then carries out what waits.
        return request.verb != requests.WARM_UP and work.publisher.is_in_place()

    def carry_out(request: RequestRecord, report: OnProgress) -> Any:
        verb = VERBS.get(request.verb)
        if verb is None:
            raise InvalidRequest(
                f"the store's holder does not know {request.verb!r}", remedy="restart its mount or daemon"
            )
        return verb.run(work, request.path, request.options, report)

    return RequestServer(work.metadata, takes, carry_out)
