"""The table of cold verbs: all that a command may ask of the store's holder.

A new verb is one row here, with its work in ColdWork, and the command that performs it (perform.py). Names, options
and the fields of results are written to request rows, which a holder of another version reads: they never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tierfs.background.collect import Collected
from tierfs.background.consolidation import ConsolidateReport
from tierfs.background.managed_offload import PrefixOffloaded
from tierfs.background.segment_restore import SegmentRestored
from tierfs.background.upload import OffloadReport
from tierfs.background.work import ColdWork, EvictReport
from tierfs.parallel import OnProgress
from tierfs.segments.positions import Position

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
    """The options that set those flags which are true."""
    return {name: "1" for name, value in wanted.items() if value}


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)
