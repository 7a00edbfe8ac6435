"""The table of cold verbs: all that a command may ask of the store's holder.

A new verb is one row here, with its work in ColdWork, and the command that performs it. Names, options and the fields
of results are written to request rows, which a holder of another version reads: they never change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress
from tierfs.engine.metadata.tables import LOCATIONS
from tierfs.engine.segments.positions import Position
from tierfs.tiering import extra_metadata
from tierfs.tiering.archive.command import ArchiveReport
from tierfs.tiering.backup.segment import SegmentRestored
from tierfs.tiering.consolidate_command import CompressReport, ConsolidateReport
from tierfs.tiering.evict_command import EvictReport
from tierfs.tiering.garbage.collect import Collected
from tierfs.tiering.ledgers.managed import PrefixOffloaded
from tierfs.tiering.offload_command import OffloadReport
from tierfs.tiering.part import MovedPart
from tierfs.upkeep.holder.switch import Switched
from tierfs.upkeep.holder.work import ColdWork

R = TypeVar("R")

# A flag is an option with any value.
Options = Mapping[str, str]

# Flag of load.
ACCEPT_LOSS = "accept_loss"

# Option of a ledger's offload: a position; without it every closed ledger.
BEFORE = "before"

# Options of a part: an offset of a segment, and the newest bytes that stay.
BEFORE_OFFSET, KEEP = "before_offset", "keep"

# Option of an offload with metadata, required: extra metadata as `extra_metadata.encoded` writes them.
METADATA = "metadata"

# Flag of consolidate, compress and evict. It changes nothing and needs no lock, so no request has it.
DRY_RUN = "dry_run"

# Flag of evict.
FORCE = "force"

# Option of switch, required: the record of the place, encoded, in hexadecimal digits.
PLACE = "place"

# Option of archive, required: a storage class; empty: that of new objects.
STORAGE_CLASS = "storage_class"

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

# By names of their own: an older holder would make the objects without the extra metadata.
OFFLOAD_WITH_METADATA = Verb(
    "offload with metadata",
    lambda work, path, options, report: work.offload(
        path, report, _part(options) if {BEFORE_OFFSET, KEEP} & options.keys() else None, _extra(options)
    ),
    OffloadReport,
    uploads=True,
)

OFFLOAD_PREFIX_WITH_METADATA = Verb(
    "ledger offload with metadata",
    lambda work, path, options, report: work.offload_prefix(
        path, _position(options.get(BEFORE)), report, _extra(options)
    ),
    PrefixOffloaded,
    uploads=True,
)

CONSOLIDATE = Verb(
    "consolidate",
    lambda work, path, options, report: work.consolidate(path, dry_run=DRY_RUN in options, report=report),
    ConsolidateReport,
)

# By a name of its own: an older holder would only join objects.
COMPRESS = Verb(
    "compress",
    lambda work, path, options, report: work.compress(path, dry_run=DRY_RUN in options, report=report),
    CompressReport,
    uploads=True,
)

ARCHIVE = Verb(
    "archive",
    lambda work, path, options, report: work.archive(
        path, options[STORAGE_CLASS], dry_run=DRY_RUN in options, report=report
    ),
    ArchiveReport,
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
    for verb in (
        OFFLOAD,
        OFFLOAD_PREFIX,
        OFFLOAD_PART,
        OFFLOAD_WITH_METADATA,
        OFFLOAD_PREFIX_WITH_METADATA,
        CONSOLIDATE,
        COMPRESS,
        ARCHIVE,
        EVICT,
        EVICT_PART,
        LOAD,
        SWITCH,
        COLLECT,
    )
}


def flags(wanted: Mapping[str, bool]) -> Options:
    """Return the options that set those flags which are true."""
    return {name: "1" for name, value in wanted.items() if value}


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)


def _part(options: Options) -> MovedPart:
    before = options.get(BEFORE_OFFSET)
    return MovedPart(None if before is None else int(before), int(options.get(KEEP, "0")))


def _extra(options: Options) -> dict[str, str]:
    return extra_metadata.decoded(options[METADATA])


def offload_of(options: Options, extra: Mapping[str, str]) -> tuple[Verb[OffloadReport], Options]:
    """Return the verb that offloads a path, or the part that its options name, with extra metadata, and its options.

    Raises InvalidRequest for metadata that no object can have.
    """
    if extra:
        return OFFLOAD_WITH_METADATA, {**options, METADATA: extra_metadata.encoded(extra)}
    return (OFFLOAD_PART if options else OFFLOAD), options


def offload_prefix_of(options: Options, extra: Mapping[str, str]) -> tuple[Verb[PrefixOffloaded], Options]:
    """Do the same for the ledgers of a managed ledger."""
    if extra:
        return OFFLOAD_PREFIX_WITH_METADATA, {**options, METADATA: extra_metadata.encoded(extra)}
    return OFFLOAD_PREFIX, options
