"""Which parts a multipart upload makes one object of, from ranges of existing objects. Pure.

A server copies a part itself when it is a range of one object and at least 5 MiB long; only the last part may
be shorter. What is shorter has to be read and uploaded by the client, together with neighbours until it is
long enough: those lend bytes of their ends, or are uploaded whole when they have none to spare. The plan is
the one with the fewest uploaded bytes; it uploads none when every piece is at least 5 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tierfs.errors import InvalidRequest
from tierfs.types import MIB


@dataclass(frozen=True, slots=True)
class PartLimits:
    """What a server accepts; the defaults are S3's."""

    min_bytes: int = 5 * MIB
    """Of every part but the last."""
    max_bytes: int = 5 * 1024 * MIB
    """Of every part. At least twice the minimum, so that whatever is too long can be cut."""
    upload_bytes: int = 8 * MIB
    """Uploaded parts are cut when they reach twice this, so that few bytes are in memory."""
    max_parts: int = 10_000


S3_LIMITS = PartLimits()


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes of one piece: its index, and where in the piece they begin."""

    piece: int
    offset: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """One part: a slice that the server copies, or slices that the client reads and uploads."""

    slices: tuple[Slice, ...]
    copied: bool

    @property
    def length_bytes(self) -> int:
        """Length of the part."""
        return sum(one.length_bytes for one in self.slices)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A piece the server copies but for what it lends, and the cheapest ways to everything before it."""

    piece: int
    head: int
    """Bytes at its beginning that are uploaded with what is before it."""
    slack: int
    """Bytes at its end that it could lend to what is behind it."""
    lent: int
    """Bytes that the piece kept before this one lends to what is between them."""
    uploaded: int
    before: _Kept | None


_ABSORBED = 2
"""Most neighbouring pieces of full size that a best plan uploads whole in a row. Of three, the middle one could
be copied: those around it are long enough by themselves."""


def plan_parts(lengths: Sequence[int], limits: PartLimits = S3_LIMITS) -> tuple[Part, ...]:
    """Parts that make up pieces of these lengths (none is 0), in order, with the fewest uploaded bytes.

    Raises InvalidRequest when there would be too many parts.
    """
    kept = _kept(lengths, limits)
    parts: list[Part] = []
    gap: list[Slice] = []
    uploaded_bytes = sum(lengths) - sum(one.length_bytes for one in kept)
    upload_bytes = max(limits.upload_bytes, -(-2 * uploaded_bytes // limits.max_parts))
    at = 0
    for one in kept:
        gap += [Slice(index, 0, lengths[index]) for index in range(at, one.piece)]
        if one.offset:
            gap.append(Slice(one.piece, 0, one.offset))
        parts += _uploads(gap, upload_bytes)
        parts += _copies(one, limits.max_bytes)
        end = one.offset + one.length_bytes
        gap = [Slice(one.piece, end, lengths[one.piece] - end)] if end < lengths[one.piece] else []
        at = one.piece + 1
    gap += [Slice(index, 0, lengths[index]) for index in range(at, len(lengths))]
    parts += _uploads(gap, upload_bytes)
    if len(parts) > limits.max_parts:
        raise InvalidRequest(f"{len(lengths)} pieces make {len(parts)} parts; there may be {limits.max_parts}")
    return tuple(parts)


def client_bytes(parts: Iterable[Part]) -> int:
    """Bytes that go through the client."""
    return sum(part.length_bytes for part in parts if not part.copied)


def _kept(lengths: Sequence[int], limits: PartLimits) -> list[Slice]:
    """What the server copies, in order: dynamic programming over the pieces it could copy."""
    sums = [0, *accumulate(lengths)]
    last = len(lengths) - 1
    states: list[list[_Kept]] = [[_Kept(-1, 0, 0, 0, 0, None)]]
    for piece, length in enumerate(lengths):
        if length >= limits.min_bytes or piece == last:
            room = length - (1 if piece == last else limits.min_bytes)
            found = [
                state
                for before in states[-1 - _ABSORBED :]
                for one in before
                if (state := _keep(one, piece, room, sums, limits)) is not None
            ]
            states.append(_undominated(found))
    ends = [one for found in states[-1 - _ABSORBED :] for one in found]
    best: _Kept | None = min(ends, key=lambda one: one.uploaded + sums[-1] - sums[one.piece + 1])
    chain: list[Slice] = []
    lent = 0
    while best is not None and best.piece >= 0:
        chain.append(Slice(best.piece, best.head, lengths[best.piece] - best.head - lent))
        lent, best = best.lent, best.before
    return chain[::-1]


def _keep(before: _Kept, piece: int, room: int, sums: Sequence[int], limits: PartLimits) -> _Kept | None:
    """Keep `piece` as the next one behind `before`; None when what is between them cannot be made long enough."""
    between = sums[piece] - sums[before.piece + 1]
    need = max(0, limits.min_bytes - between) if between else 0
    lent = min(before.slack, need)
    if need - lent > room:
        return None
    return _Kept(piece, need - lent, room - (need - lent), lent, before.uploaded + between + need, before)


def _undominated(found: Iterable[_Kept]) -> list[_Kept]:
    """States that are cheaper, or could lend more, than every other."""
    best: list[_Kept] = []
    for state in sorted(found, key=lambda one: (one.uploaded, -one.slack)):
        if not best or state.slack > best[-1].slack:
            best.append(state)
    return best


def _copies(kept: Slice, max_bytes: int) -> Iterator[Part]:
    """A range as the fewest, even parts."""
    for start, length in _even(kept.length_bytes, -(-kept.length_bytes // max_bytes)):
        yield Part((Slice(kept.piece, kept.offset + start, length),), copied=True)


def _uploads(slices: Sequence[Slice], upload_bytes: int) -> Iterator[Part]:
    """Neighbouring slices as even parts of at least `upload_bytes`, or one."""
    total = sum(one.length_bytes for one in slices)
    left = list(reversed(slices))
    for _, length in _even(total, max(1, total // upload_bytes)) if total else ():
        yield Part(tuple(_take(left, length)), copied=False)


def _take(left: list[Slice], length_bytes: int) -> Iterator[Slice]:
    """Take this many bytes off the end of a reversed list, cutting the slice they end in."""
    while length_bytes:
        one = left.pop()
        size = min(length_bytes, one.length_bytes)
        if size < one.length_bytes:
            left.append(Slice(one.piece, one.offset + size, one.length_bytes - size))
        length_bytes -= size
        yield Slice(one.piece, one.offset, size)


def _even(length_bytes: int, count: int) -> Iterator[tuple[int, int]]:
    """Cut a length into `count` stretches that differ by a byte at most: start and length of each."""
    for index in range(count):
        start = length_bytes * index // count
        yield start, length_bytes * (index + 1) // count - start
