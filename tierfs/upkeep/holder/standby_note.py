"""The note of a standby, and of an owner that has one: a file of the store, for `status` and `tierfs standby`.

The holder writes what it knows, commands what a person wants. It is a report: a note that is missing or damaged ends
nothing, and a person's wish is then made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from enum import StrEnum
from typing import Any

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system import osio, shared_json
from tierfs.base.system.clock import Clock
from tierfs.base.system.store_paths import StorePaths

log = logging.getLogger(__name__)

# Segments that a note lists of those that may lack bytes.
MOST_LISTED = 1000


class Phase(StrEnum):
    """The state of a standby."""

    NONE = ""
    """The store is no standby, and has none."""
    FOLLOWS = "follows"
    SILENT = "silent"
    """The owner has shown no sign of life lately, and the time is not over."""
    BLOCKED = "blocked"
    """The time is over, or the owner never answered; the reason is told."""
    TAKES_OVER = "takes over"
    OWNER = "owner"
    """This store owns the bucket, and a standby follows it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The takeover by which this store became the owner."""

    from_host: str
    epoch: int
    at_ms: int
    why: str
    segments: int = 0
    incomplete: tuple[str, ...] = ()
    """The first segments of which the previous owner has bytes that the bucket lacks, or may have, a line each."""
    more: int = 0
    """Others of these."""
    local_only_bytes: int = -1
    """Bytes that only its disk had at its last sign of life; -1: not known."""


@dataclass(frozen=True, slots=True)
class StandbyNote:
    """All that is known."""

    id: str = ""
    """Of this store as a standby."""
    paused: str = ""
    """The reason for which a person has paused takeovers; empty: nobody has."""
    wanted: str = ""
    """Id of a takeover that a person wants now."""
    refused: str = ""
    """The error of the last one that a person wanted."""
    phase: Phase = Phase.NONE
    why: str = ""
    after_s: float = 0
    """Time without a sign of life after which a standby takes over; of an owner's standbys, the shortest."""
    other_host: str = ""
    """Of the owner; for an owner, those of its standbys."""
    boot_id: str = ""
    seen_s: float = 0
    """Time since that boot at which the newest sign of life was seen, or put."""
    silent_s: float = 0
    """Time without one that a standby has counted, in whole seconds."""
    slot: int = 0
    """With `epoch` and `beat`, what every look of that time has shown: another process may continue the count."""
    epoch: int = 0
    beat: str = ""
    before: str = ""
    """The beat that was there when this standby put its mark: it is no answer to that."""
    attempt: str = ""
    """Id of this standby's takeover, while none has ended."""
    local_only_bytes: int = -1
    """Bytes that only the owner's disk had then; -1: not known."""
    taken: Taken | None = None

    @property
    def brief(self) -> StandbyNote:
        """The note without the segments that a takeover lists."""
        taken = self.taken
        if taken is None or not taken.incomplete:
            return self
        return replace(self, taken=replace(taken, incomplete=(), more=len(taken.incomplete) + taken.more))

    def age_s(self, clock: Clock) -> float | None:
        """Return how long ago the newest sign of life was; None for none since this machine's start."""
        if not self.boot_id or self.boot_id != clock.boot_id():
            return None
        return max(0.0, clock.boot_s() - self.seen_s)


NO_STANDBY = StandbyNote()


def read(paths: StorePaths) -> StandbyNote:
    """Return the note of a store; an empty one where there is none, or it is damaged."""
    try:
        content = shared_json.read(paths.standby)
        return NO_STANDBY if content is None else _parsed(content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        log.info("%s cannot be read: %s", paths.standby, exc)
        return NO_STANDBY


def write(paths: StorePaths, change: Callable[[StandbyNote], StandbyNote]) -> StandbyNote:
    """Change the note of a store; return it. Raises OSError."""
    written: list[StandbyNote] = []

    def changed() -> object:
        written.append(change(read(paths)))
        return asdict(written[-1])

    shared_json.update(paths.standby, paths.standby_lock, changed)
    return written[-1]


def write_synced(paths: StorePaths, change: Callable[[StandbyNote], StandbyNote]) -> StandbyNote:
    """Do the same; it stays after a power failure."""
    written = write(paths, change)
    osio.sync(paths.standby)
    osio.sync_directory(paths.root)
    return written


def report(paths: StorePaths, **known: Any) -> None:
    """Change fields of the note. One that cannot be written is logged, and ends nothing."""
    try:
        if replace(before := read(paths), **known) != before:
            write(paths, lambda note: replace(note, **known))
    except OSError as exc:  # a full disk, or a read-only one
        log.info("cannot write %s: %s", paths.standby, exc)


def _parsed(content: Any) -> StandbyNote:
    known = {field.name: content[field.name] for field in fields(StandbyNote) if field.name in content}
    taken = known.pop("taken", None)
    if taken is not None:
        taken = Taken(**(taken | {"incomplete": tuple(taken["incomplete"])}))
    return StandbyNote(**known | {"phase": Phase(known.get("phase", "")), "taken": taken})
