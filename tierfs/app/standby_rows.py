"""Lines about a standby, or an owner that has one, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tierfs.base.system.clock import Clock
from tierfs.base.words import units
from tierfs.base.words.names import printable
from tierfs.base.words.texts import clock_time
from tierfs.upkeep.holder.standby_note import Phase, StandbyNote, Taken

_NOBODY = "no mount or daemon runs here, so it does not follow the bucket: tierfs mount, tierfs daemon"
NO_REPLICA = (
    "standby.takeover_after_s has no effect: this store is not a replica; make a standby in a new directory: "
    "tierfs replica --standby"
)
"""For an owner with a time of takeover in its settings. A standby that took over has one, so it is not refused."""
_LATER = "new names since its last entry are listed only there: tierfs status"


def describe(
    note: StandbyNote,
    clock: Clock,
    *,
    is_replica: bool,
    is_held: bool,
    takes_over: bool = False,
    superseded_by: int = 0,
) -> list[str]:
    """Return lines about the standby of a store, and its takeover.

    `takes_over`: by the settings, which count for a replica alone. `superseded_by`: epoch of a later owner.
    """
    if superseded_by:
        return [
            f"another store owns the bucket since epoch {superseded_by}; bytes that only this disk has: tierfs status"
        ]
    lines = list(summary(note, note.age_s(clock), is_replica=is_replica, is_held=is_held))
    if note.taken is not None and not is_replica:
        lines += taken_lines(note.taken)
    if not lines and is_replica:
        return ["a replica without a time after which it takes over; to take over now: tierfs standby --now"]
    if not lines and takes_over:
        return [NO_REPLICA]
    return lines or ["no standby follows this store, as far as its mount or daemon knows"]


def summary(note: StandbyNote, age_s: float | None, *, is_replica: bool, is_held: bool) -> Iterator[str]:
    """Yield what is shown of it in `status`; nothing for a store without a standby."""
    after = units.format_duration(round(note.after_s))
    seen = (
        "no sign of life seen yet" if age_s is None else f"last sign of life {units.format_duration(round(age_s))} ago"
    )
    other = printable(note.other_host) or "an unknown host"
    if not is_replica:
        if note.phase is Phase.OWNER:
            yield f"{other} takes over after {after} without a sign of life; {seen}"
        return
    if not note.after_s:
        return
    if not is_held:
        yield _NOBODY
        return
    has = (
        f"; it has {units.size(note.local_only_bytes)} that are not in the bucket" if note.local_only_bytes > 0 else ""
    )
    yield f"follows {other}, {seen}{has}; takes over after {after} without one"
    if note.paused:
        yield f"paused by a person: {printable(note.paused)}; to allow takeovers: tierfs standby --resume"
    if note.phase is Phase.BLOCKED and note.why:
        yield f"no takeover: {printable(note.why)}"
    elif note.phase in (Phase.SILENT, Phase.TAKES_OVER):
        yield f"the owner is silent: {printable(note.why) or f'for {units.format_duration(round(note.silent_s))}'}"


def taken_lines(taken: Taken) -> list[str]:
    """Return what a takeover left behind: the bytes that only the previous owner has."""
    owner = printable(taken.from_host) or "the previous owner"
    lines = [f"owner since epoch {taken.epoch}, {clock_time(taken.at_ms)}, after {owner}: {printable(taken.why)}"]
    count = len(taken.incomplete) + taken.more
    if not count:
        return [*lines, f"the journal shows no byte that only the disk of {owner} has; {_LATER}"]
    has = f" ({units.size(taken.local_only_bytes)} as of its last sign of life)" if taken.local_only_bytes > 0 else ""
    lines.append(
        f"{units.count(count, 'segment')} of {taken.segments} may have bytes that only the disk of {owner} has{has}; "
        f"{_LATER}"
    )
    lines += [f"  {printable(line)}" for line in taken.incomplete]
    return [*lines, f"  and {units.count(taken.more, 'more segment')}"] if taken.more else lines


def after_takeover(taken: Taken) -> str:
    """Return one line about a takeover, for `status`."""
    owner, count = printable(taken.from_host) or "the previous owner", len(taken.incomplete) + taken.more
    rest = f"; {units.count(count, 'segment')} may lack bytes, see: tierfs standby" if count else ""
    return f"from {owner}, {clock_time(taken.at_ms)}{rest}"
