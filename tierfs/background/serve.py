"""Serving requests: what the holder does for other processes, with progress and result in the row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tierfs.background import requests
from tierfs.background.upload import Progress, Report
from tierfs.background.work import ColdWork
from tierfs.errors import InvalidRequest, TierfsError, Unavailable
from tierfs.metadata.records import RequestRecord
from tierfs.metadata.store import MetadataStore
from tierfs.segments.positions import Position

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 0.25
"""Each report is a durable commit."""

OFFLOAD, EVICT, COLLECT, LOAD = "offload", "evict", "gc", "load"
CONSOLIDATE = "consolidate"
OFFLOAD_PREFIX = "offload-prefix"
FORCE = "force"
"""Option of evict."""

ACCEPT_LOSS = "accept_loss"
"""Option of load."""

BEFORE = "before"
"""Option of offload-prefix: a position; without it every closed ledger."""

GRACE_S = "grace_s"
"""Option of gc: how old an orphan has to be."""


class RequestServer:
    """Carries out requests. Called in threads."""

    def __init__(self, metadata: MetadataStore, work: ColdWork) -> None:
        self._metadata = metadata
        self._work = work
        self._seen_transaction = -1
        self._left_running = False
        """Whether a request's end could not be written down, as on a full disk: it is done again."""
        self._verbs: Mapping[str, Callable[[RequestRecord, Report], Any]] = {
            OFFLOAD: lambda request, report: work.offload(request.path, report),
            OFFLOAD_PREFIX: lambda request, report: work.offload_prefix(
                request.path, _position(request.options.get(BEFORE)), report
            ),
            CONSOLIDATE: lambda request, report: work.consolidate(request.path, dry_run=False, report=report),
            EVICT: lambda request, report: work.evict(
                request.path, force=FORCE in request.options, dry_run=False, report=report
            ),
            LOAD: lambda request, report: work.load_segment(
                request.path, accept_loss=ACCEPT_LOSS in request.options, report=report
            ),
            COLLECT: lambda request, report: work.collect_all(grace_s=int(request.options[GRACE_S])),
        }

    @property
    def may_have_next(self) -> bool:
        """Whether anything was committed since the last look found no request; costs microseconds."""
        return self._left_running or self._metadata.last_transaction_id() != self._seen_transaction

    def next(self) -> RequestRecord | None:
        """The next request, now running. Raises what writing that down raises."""
        if self._left_running:
            requests.restart(self._metadata)
            self._left_running = False
        newest = self._metadata.last_transaction_id()
        found = requests.take_next(self._metadata)
        if found is None:
            self._seen_transaction = newest
        return found

    def uploads(self, request: RequestRecord) -> bool:
        """Whether a request uploads by itself, so that the background writer pauses its own uploads."""
        return request.verb in (OFFLOAD, OFFLOAD_PREFIX)

    def carry_out(self, request: RequestRecord) -> None:
        """Do it and write down what came of it, whatever that is. Raises what writing it raises."""
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
        verb = self._verbs.get(request.verb)
        if verb is None:
            raise InvalidRequest(f"the store's holder does not know {request.verb!r}", remedy="restart the holder")
        return verb(request, self._reporter(request.id))

    def _reporter(self, number: int) -> Report:
        clock = self._metadata.clock
        last_s = clock.monotonic_s()

        def report(progress: Progress) -> None:
            nonlocal last_s
            if clock.monotonic_s() - last_s >= _REPORT_EVERY_S:
                last_s = clock.monotonic_s()
                requests.show_progress(self._metadata, number, progress)

        return report


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)
