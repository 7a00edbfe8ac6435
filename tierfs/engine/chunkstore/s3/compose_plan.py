"""The parts of an object that is composed of ranges of others, with the fewest bytes through the client. Pure.

A server copies a part itself when it is a range of one object and at least 5 MiB long; only the last part may be
shorter. The client has to read and upload shorter pieces, together with neighbours until the part is long enough:
neighbours lend bytes of their ends, or are uploaded whole if they have none to spare. `plan_parts` finds the parts with
the fewest uploaded bytes: none if every piece is at least 5 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB

# Most neighbouring pieces of full size that a best plan uploads whole in a row. Of three, the middle one could be
# copied: those around it are long enough by themselves.
_ABSORBED = 2


@dataclass(frozen=True, slots=True)
class PartLimits:
    """Limits of a server; the defaults are S3's."""

    min_bytes: int = 5 * MIB
    """Of every part but the last."""
    max_bytes: int = 5 * 1024 * MIB
    """Of every part. At least twice the minimum, so that any longer range can be cut."""
    upload_bytes: int = 8 * MIB
    """Uploaded parts are cut when they reach twice this, so that few bytes are in memory."""
    max_parts: int = 10_000


S3_LIMITS = PartLimits()


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes of one piece: its index, and the offset in it."""

    piece: int
    offset: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class ComposePart:
    """One part: a slice that the server copies, or slices that the client reads and uploads."""

    slices: tuple[Slice, ...]
    copied: bool

    @property
    def length_bytes(self) -> int:
        """Length of the part."""
        return sum(cut.length_bytes for cut in self.slices)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A piece the server copies, except for lent bytes, and the cheapest plan for everything before it."""

    piece: int
    head: int
    """Bytes at its beginning that are uploaded with the pieces before it."""
    slack: int
    """Bytes at its end that it could lend to the pieces after it."""
    lent: int
    """Bytes that the previous kept piece lends to the pieces between them."""
    uploaded: int
    before: _Kept | None


def plan_parts(lengths: Sequence[int], limits: PartLimits = S3_LIMITS) -> tuple[ComposePart, ...]:
    """Return the parts for pieces of these lengths (none is 0), in order, with the fewest uploaded bytes.

    Raises InvalidRequest when there would be too many parts.
    """
    kept = _kept(lengths, limits)
    parts: list[ComposePart] = []
    gap: list[Slice] = []
    uploaded_bytes = sum(lengths) - sum(copied.length_bytes for copied in kept)
    upload_bytes = max(limits.upload_bytes, -(-2 * uploaded_bytes // limits.max_parts))
    at = 0
    for copied in kept:
        gap += [Slice(index, 0, lengths[index]) for index in range(at, copied.piece)]
        if copied.offset:
            gap.append(Slice(copied.piece, 0, copied.offset))
        parts += _uploads(gap, upload_bytes)
        parts += _copies(copied, limits.max_bytes)
        end = copied.offset + copied.length_bytes
        gap = [Slice(copied.piece, end, lengths[copied.piece] - end)] if end < lengths[copied.piece] else []
        at = copied.piece + 1
    gap += [Slice(index, 0, lengths[index]) for index in range(at, len(lengths))]
    parts += _uploads(gap, upload_bytes)
    if len(parts) > limits.max_parts:
        raise InvalidRequest(f"{len(lengths)} pieces make {len(parts)} parts; there may be {limits.max_parts}")
    return tuple(parts)


def client_bytes(parts: Iterable[ComposePart]) -> int:
    """Return the bytes that pass through the client."""
    return sum(part.length_bytes for part in parts if not part.copied)


def _kept(lengths: Sequence[int], limits: PartLimits) -> list[Slice]:
    """Return the slices the server copies, in order: dynamic programming over the pieces it could copy."""
    sums = [0, *accumulate(lengths)]
    last = len(lengths) - 1
    states: list[list[_Kept]] = [[_Kept(-1, 0, 0, 0, 0, None)]]
    for piece, length in enumerate(lengths):
        if length >= limits.min_bytes or piece == last:
            room = length - (1 if piece == last else limits.min_bytes)
            reached = [
                state
                for earlier in states[-1 - _ABSORBED :]
                for before in earlier
                if (state := _keep(before, piece, room, sums, limits)) is not None
            ]
            states.append(_undominated(reached))
    ends = [state for reached in states[-1 - _ABSORBED :] for state in reached]
    best: _Kept | None = min(ends, key=lambda state: state.uploaded + sums[-1] - sums[state.piece + 1])
    chain: list[Slice] = []
    lent = 0
    while best is not None and best.piece >= 0:
        chain.append(Slice(best.piece, best.head, lengths[best.piece] - best.head - lent))
        lent, best = best.lent, best.before
    return chain[::-1]


def _keep(before: _Kept, piece: int, room: int, sums: Sequence[int], limits: PartLimits) -> _Kept | None:
    """Keep `piece` as the next one after `before`; None if the part between them would be too short."""
    between = sums[piece] - sums[before.piece + 1]
    need = max(0, limits.min_bytes - between) if between else 0
    lent = min(before.slack, need)
    if need - lent > room:
        return None
    return _Kept(piece, need - lent, room - (need - lent), lent, before.uploaded + between + need, before)


def _undominated(states: Iterable[_Kept]) -> list[_Kept]:
    """Return the states that are cheaper, or could lend more, than every other."""
    best: list[_Kept] = []
    for state in sorted(states, key=lambda state: (state.uploaded, -state.slack)):
        if not best or state.slack > best[-1].slack:
            best.append(state)
    return best


def _copies(kept: Slice, max_bytes: int) -> Iterator[ComposePart]:
    """Yield a range as the fewest even parts."""
    for start, length in _even(kept.length_bytes, -(-kept.length_bytes // max_bytes)):
        yield ComposePart((Slice(kept.piece, kept.offset + start, length),), copied=True)


def _uploads(slices: Sequence[Slice], upload_bytes: int) -> Iterator[ComposePart]:
    """Yield neighbouring slices as even parts of at least `upload_bytes`, or one part."""
    total = sum(cut.length_bytes for cut in slices)
    remaining = list(reversed(slices))
    for _, length in _even(total, max(1, total // upload_bytes)) if total else ():
        yield ComposePart(tuple(_take(remaining, length)), copied=False)


def _take(remaining: list[Slice], length_bytes: int) -> Iterator[Slice]:
    """Take this many bytes off the end of a reversed list, cutting the last slice taken."""
    while length_bytes:
        last = remaining.pop()
        size = min(length_bytes, last.length_bytes)
        if size < last.length_bytes:
            remaining.append(Slice(last.piece, last.offset + size, last.length_bytes - size))
        length_bytes -= size
        yield Slice(last.piece, last.offset, size)


def _even(length_bytes: int, count: int) -> Iterator[tuple[int, int]]:
    """Cut a length into `count` ranges that differ by a byte at most; yield start and length of each."""
    for index in range(count):
        start = length_bytes * index // count
        yield start, length_bytes * (index + 1) // count - start
