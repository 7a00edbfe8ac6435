"""Perform a cold verb: here when no process holds the store, else by its holder, with the same result or error.

A holder that dies meanwhile is no failure: the next one takes the request (`server`), or this process does the work
itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.system import processes
from tierfs.base.system.clock import Clock
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.errors import Conflict, InvalidRequest
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.holder_records import RequestRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.upkeep.holder import lock, requests
from tierfs.upkeep.holder.lock import HeldElsewhere
from tierfs.upkeep.holder.requests import RequestServer
from tierfs.upkeep.holder.verbs import DRY_RUN, VERBS, Options, Verb
from tierfs.upkeep.holder.work import ColdWork

R = TypeVar("R")
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
        raise Conflict(
            "the store has no holder, so the request would not be carried out", remedy="run it without --no-wait"
        )
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
                f"the store's holder does not support {request.verb!r}", remedy="restart its mount or daemon"
            )
        return verb.run(work, request.path, request.options, report)

    return RequestServer(work.metadata, takes, carry_out)
