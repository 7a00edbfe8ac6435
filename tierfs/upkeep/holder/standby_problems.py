"""The problems of a standby, and of an owner that has one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tierfs.base.words import units
from tierfs.base.words.names import printable
from tierfs.upkeep.holder.problem import Problem, ProblemKind
from tierfs.upkeep.holder.standby_note import Phase

if TYPE_CHECKING:
    from tierfs.upkeep.holder.status import StoreStatus

_SEE = "see: tierfs standby"


def standby_problems(status: StoreStatus) -> Iterator[Problem]:
    """Yield why a takeover is near, or does not happen."""
    if status.journal.fenced_by_epoch or not status.standby.after_s:
        return
    yield from _of_standby(status) if status.journal.replica else _of_owner(status)


def _of_standby(status: StoreStatus) -> Iterator[Problem]:
    note, owner = status.standby, printable(status.standby.other_host) or "the owner"
    if status.holder is None:
        text = "no process follows the bucket, so this standby does not take over"
        yield Problem(ProblemKind.STANDBY_BLOCKED, text, "start a mount (tierfs mount) or a daemon (tierfs daemon)")
    elif note.paused:
        text = f"a person has paused takeovers: {printable(note.paused)}"
        yield Problem(ProblemKind.STANDBY_BLOCKED, text, "to allow them: tierfs standby --resume")
    elif note.phase is Phase.BLOCKED:
        yield Problem(ProblemKind.STANDBY_BLOCKED, f"no takeover: {printable(note.why)}", _SEE)
    elif note.phase in (Phase.SILENT, Phase.TAKES_OVER):
        text = f"{owner} shows no sign of life; this standby takes over after {_time(note.after_s)}"
        yield Problem(ProblemKind.OWNER_SILENT, text, "to prevent the takeover: tierfs standby --pause WHY")


def _of_owner(status: StoreStatus) -> Iterator[Problem]:
    """Yield that this owner's standby may take over, as the owner sees it."""
    note, age_s = status.standby, status.standby_age_s
    if note.phase is not Phase.OWNER or (age_s is not None and age_s < note.after_s):
        return
    since = "since this machine's start" if age_s is None else f"for {_time(age_s)}"
    here = units.size(status.not_offloaded_bytes)
    text = (
        f"no sign of life reached the bucket {since}: the standby on {printable(note.other_host)} may have taken over; "
        f"appends with ack=cold wait, and {here} are only on this disk"
    )
    remedy = (
        "start a mount or daemon, or restore the connection; to stop the standby, there: tierfs standby --pause WHY"
    )
    yield Problem(ProblemKind.OWNER_SILENT, text, remedy)


def _time(seconds: float) -> str:
    return units.format_duration(round(seconds))
