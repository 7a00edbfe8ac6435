"""What retention takes away: a pure function of a stream's members and the time (design §7).

Nothing here reads a clock or a database; the runs of a member are consumed only as far as they expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tierfs.policy import Policy
from tierfs.types import SegmentId


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes that go together: up to the end of a complete chunk."""

    end_offset: int
    written_by_ms: int
    """No byte of it was appended later."""


@dataclass(frozen=True, slots=True)
class Member:
    """One segment of a stream, or a segment that is its own."""

    id: SegmentId
    policy: Policy
    start_offset: int
    length: int
    runs: Iterable[Run]
    """What may go, from the start offset on; it ends where something has to stay, whatever its age."""
    sealed: bool = False
    ended_ms: int = 0
    """When a sealed one took its last byte or was sealed, whichever was later."""
    names_stream: bool = False
    """Whether appends to its name go on in a successor."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """A segment loses its head, or goes."""

    segment_id: SegmentId
    before_offset: int
    """First byte that stays."""
    bytes: int
    removes: bool = False
    """Nothing is left of it, its name included."""


def expired(members: Sequence[Member], now_ms: int) -> Iterator[Expiry]:
    """What goes now of a stream, whose members come oldest first.

    Bytes go from the stream's head on, run by run: those older than `retention_age`, and those that leave
    `retention_bytes` behind them, of all members together. A younger member stays as long as a byte before it
    does. An open segment is never removed, nor is the one that has the stream's name.
    """
    left = sum(member.length - member.start_offset for member in members)
    for member in members:
        cut = member.start_offset
        for run in member.runs:
            size = run.end_offset - cut
            if not (_is_old(member.policy, run.written_by_ms, now_ms) or _is_surplus(member.policy, left - size)):
                break
            left -= size
            cut = run.end_offset
        gone = cut == member.length and member.sealed and (cut > member.start_offset or _is_stale(member, now_ms))
        removes = gone and not member.names_stream
        if removes or cut > member.start_offset:
            yield Expiry(member.id, cut, cut - member.start_offset, removes)
        if cut < member.length:
            return


def next_expiry_ms(members: Sequence[Member]) -> int | None:
    """When age takes bytes of a stream away next; None when nothing that may go has an age to reach."""
    for member in members:
        age_s = member.policy.retention_age_s
        if age_s is None:
            return None
        first = next(iter(member.runs), None)
        if first is not None:
            return first.written_by_ms + age_s * 1000
        if member.start_offset < member.length or not member.sealed:
            return None  # its bytes are not cold yet, or still to come
        if not member.names_stream:
            return member.ended_ms + age_s * 1000
    return None


def _is_old(policy: Policy, written_by_ms: int, now_ms: int) -> bool:
    return policy.retention_age_s is not None and now_ms - written_by_ms >= policy.retention_age_s * 1000


def _is_surplus(policy: Policy, left_bytes: int) -> bool:
    return policy.retention_bytes is not None and left_bytes >= policy.retention_bytes


def _is_stale(empty: Member, now_ms: int) -> bool:
    """Whether a segment without bytes has been one for as long as bytes are kept."""
    return _is_old(empty.policy, empty.ended_ms, now_ms)
