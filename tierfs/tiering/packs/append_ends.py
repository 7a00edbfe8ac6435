"""The ends of appends that the cold tier acknowledges: their deadlines, and the errors of those that it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tierfs.base.system import deadlines
from tierfs.base.system.deadlines import Deadline
from tierfs.base.words.errors import Fenced, TierfsError, Unavailable, Unconfirmed
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange
from tierfs.engine.segments.group_commit import AppendCall, PendingCommit
from tierfs.engine.segments.writer import SegmentWriter

# Appends of a pool whose deadlines differ by less end together: a pool of each would write and send its bytes as often.
# A guess.
_SLACK_S = 0.5


class OutOfTime(Unavailable):
    """The deadline of a pool passed before its commit."""


def calls(group: Sequence[PendingCommit]) -> list[AppendCall]:
    """Return the calls of a pool."""
    return [call for pending in group for call in pending.calls]


def deadline_of(*calls: AppendCall) -> Deadline:
    """Return the deadline of calls that end together: the latest of theirs, a little after the first at most."""
    given = [call.deadline for call in calls if call.deadline is not None]
    first, last = (choose(given, key=lambda deadline: deadline.until_s) for choose in (min, max))
    return min(last, replace(first, until_s=first.until_s + _SLACK_S), key=lambda deadline: deadline.until_s)


def too_late(call: AppendCall, error: TierfsError) -> Unavailable:
    """Return the error of an append whose deadline passed before its commit."""
    assert isinstance(call.appender, SegmentWriter)
    return Unavailable(
        f"nothing was appended to {printable(call.appender.name)}: {error}",
        remedy=f"repeat the append; {deadlines.ASK_REMEDY}",
    )


def unconfirmed(name: str, held: ByteRange, error: TierfsError) -> TierfsError:
    """Return the error of an append that is in its segment, but not known to be in the journal."""
    if isinstance(error, Fenced):
        return error
    shown = printable(name)
    return Unconfirmed(
        f"the bytes {held.start} to {held.end} of {shown} were uploaded but not yet published: {error}",
        end=held.end,
        remedy=f"they are in the segment: do not append them again, continue at {held.end}; a later append, "
        "tierfs offload, or the store's mount or daemon confirms them",
    )
