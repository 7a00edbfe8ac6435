"""Making one object of ranges of others: the server copies what is long enough, the rest comes by here.

Servers may ignore the condition on a copy's source (many do), so the sources are looked at once more when all
parts are made: what was copied before that was copied from the versions asked for.

Which parts a multipart upload makes one object of, from ranges of existing objects. Pure.

A server copies a part itself when it is a range of one object and at least 5 MiB long; only the last part may
be shorter. What is shorter has to be read and uploaded by the client, together with neighbours until it is
long enough: those lend bytes of their ends, or are uploaded whole when they have none to spare. The plan is
the one with the fewest uploaded bytes; it uploads none when every piece is at least 5 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import call
from typing import Any, Protocol

from tierfs.chunkstore.protocol import Abilities, BufferSource, ObjectPiece, StoredObject
from tierfs.chunkstore.s3.client import S3Connection
from tierfs.chunkstore.s3.errors import map_s3_errors
from tierfs.chunkstore.s3.upload import SINGLE_PUT_BYTES, PartJob, Uploader, UploadPart
from tierfs.chunkstore.validate import check_etag, check_range
from tierfs.errors import AlreadyExists, DataLoss, InvalidRequest
from tierfs.names import printable
from tierfs.parallel import Pool
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
class ComposePart:
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


def plan_parts(lengths: Sequence[int], limits: PartLimits = S3_LIMITS) -> tuple[ComposePart, ...]:
    """Parts that make up pieces of these lengths (none is 0), in order, with the fewest uploaded bytes.

    Raises InvalidRequest when there would be too many parts.
    """
    kept = _kept(lengths, limits)
    parts: list[ComposePart] = []
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


def client_bytes(parts: Iterable[ComposePart]) -> int:
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


def _copies(kept: Slice, max_bytes: int) -> Iterator[ComposePart]:
    """A range as the fewest, even parts."""
    for start, length in _even(kept.length_bytes, -(-kept.length_bytes // max_bytes)):
        yield ComposePart((Slice(kept.piece, kept.offset + start, length),), copied=True)


def _uploads(slices: Sequence[Slice], upload_bytes: int) -> Iterator[ComposePart]:
    """Neighbouring slices as even parts of at least `upload_bytes`, or one."""
    total = sum(one.length_bytes for one in slices)
    left = list(reversed(slices))
    for _, length in _even(total, max(1, total // upload_bytes)) if total else ():
        yield ComposePart(tuple(_take(left, length)), copied=False)


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


SMALL_REQUESTS = 16
"""Small ranges read, and sources looked at, at once: they wait for the server, not for bytes (a guess)."""

_MIXED = Abilities(verifies_crc32c=False)
"""Parts that a server copies carry no CRC32C of ours, and an upload is of one kind: Content-MD5 for the others."""


class Read(Protocol):
    """ChunkStorage.read_into, as far as it is used here."""

    def __call__(self, name: str, offset: int, buffer: memoryview, *, if_match: str | None = None) -> None:
        """Fill `buffer`."""
        ...


class Composer:
    """Composes objects of one location. Thread-safe."""

    def __init__(
        self, connection: S3Connection, uploader: Uploader, read: Read, stat: Callable[[str], StoredObject]
    ) -> None:
        self._client = connection.client
        self._location = connection.location
        self._uploader = uploader
        self._read = read
        self._stat = stat
        self._pool = Pool(SMALL_REQUESTS, "tierfs-compose", connection.location.url())

    def compose(
        self, name: str, pieces: Sequence[ObjectPiece], metadata: Mapping[str, str], *, create_only: bool
    ) -> tuple[str, int]:
        """Store the bytes of `pieces`; returns the etag ("" when nobody knows it yet), and bytes uploaded from here.

        Raises AlreadyExists, and DataLoss when an object is not the version that its piece names.
        """
        pieces = joined(pieces)
        parts = plan_parts([piece.length_bytes for piece in pieces])
        uploaded = client_bytes(parts)
        if len(parts) == 1 and uploaded and uploaded <= SINGLE_PUT_BYTES:
            source = BufferSource(self._gather(pieces, parts[0].slices))
            return self._uploader.upload(name, source, metadata, create_only=create_only), uploaded
        jobs: list[PartJob] = [partial(self._make_part, name, pieces, part) for part in parts]
        copied = [pieces[one.piece] for part in parts if part.copied for one in part.slices]
        etag = self._uploader.assemble(
            name,
            jobs,
            metadata,
            create_only=create_only,
            abilities=_MIXED,
            before_completion=lambda: self._require_unchanged(copied),
        )
        return etag, uploaded

    def close(self) -> None:
        """What waits for a thread ends in Closed."""
        self._pool.close(wait=False)

    def _make_part(
        self, name: str, pieces: Sequence[ObjectPiece], part: ComposePart, upload_id: str, number: int
    ) -> UploadPart:
        if part.copied:
            return self._copy(name, pieces[part.slices[0].piece], part.slices[0], upload_id, number)
        return self._uploader.put_part(name, self._gather(pieces, part.slices), upload_id, number, _MIXED)

    def _copy(self, name: str, piece: ObjectPiece, one: Slice, upload_id: str, number: int) -> UploadPart:
        start = piece.offset + one.offset
        request: dict[str, Any] = {
            "CopySource": {"Bucket": self._location.bucket, "Key": self._location.key(piece.name)},
            "CopySourceRange": f"bytes={start}-{start + one.length_bytes - 1}",
            "CopySourceIfMatch": f'"{piece.etag}"',
        }
        try:
            with map_s3_errors(self._location, "copy", piece.name):
                answer = self._client.upload_part_copy(
                    Bucket=self._location.bucket,
                    Key=self._location.key(name),
                    UploadId=upload_id,
                    PartNumber=number,
                    **request,
                )
        except AlreadyExists as exc:  # what a failed condition means everywhere else
            self._require_version(piece.name, piece.etag, start + one.length_bytes)  # which says what is there now
            raise DataLoss(f"{printable(piece.name)}: it was replaced: its etag is not {piece.etag}") from exc
        return UploadPart({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]}, None)

    def _gather(self, pieces: Sequence[ObjectPiece], slices: Sequence[Slice]) -> bytes:
        """The bytes of slices, in one buffer."""
        buffer = memoryview(bytearray(sum(one.length_bytes for one in slices)))
        jobs: list[Callable[[], None]] = []
        at = 0
        for one in slices:
            piece = pieces[one.piece]
            view = buffer[at : at + one.length_bytes]
            jobs.append(partial(self._read, piece.name, piece.offset + one.offset, view, if_match=piece.etag))
            at += one.length_bytes
        self._pool.run(call, jobs)
        return bytes(buffer)

    def _require_unchanged(self, pieces: Iterable[ObjectPiece]) -> None:
        """What was copied is what was asked for. Some servers cut a range that goes past the end."""
        ends: dict[tuple[str, str], int] = {}
        for piece in pieces:
            key = (piece.name, piece.etag)
            ends[key] = max(ends.get(key, 0), piece.offset + piece.length_bytes)
        self._pool.run(call, [partial(self._require_version, name, etag, end) for (name, etag), end in ends.items()])

    def _require_version(self, name: str, etag: str, end: int) -> None:
        found = self._stat(name)
        check_etag(name, found.etag, etag, found.length_bytes)
        check_range(found, 0, end)


def joined(pieces: Sequence[ObjectPiece]) -> list[ObjectPiece]:
    """The same bytes with as few pieces as possible: neighbours in one object are one."""
    found: list[ObjectPiece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if last and (last.name, last.etag, last.offset + last.length_bytes) == (piece.name, piece.etag, piece.offset):
            found[-1] = ObjectPiece(last.name, last.offset, last.length_bytes + piece.length_bytes, last.etag)
        else:
            found.append(piece)
    return found
