"""Compose one object of ranges of others: the server copies long ranges, the client uploads the rest.

A server copies a part itself when it is a range of one object and at least 5 MiB long; only the last part may be
shorter. The client has to read and upload shorter pieces, together with neighbours until the part is long enough:
neighbours lend bytes of their ends, or are uploaded whole if they have none to spare. `plan_parts`, which is pure,
finds the parts with the fewest uploaded bytes: none if every piece is at least 5 MiB.

Servers may ignore the condition on a copy's source (many do), so the sources are checked again when all parts are
made: all copies were then made from the requested versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import call
from typing import Any, Protocol

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource, ObjectPiece, StoredObject
from tierfs.engine.chunkstore.s3.client import S3Connection
from tierfs.engine.chunkstore.s3.errors import map_s3_errors
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.upload import SINGLE_PUT_BYTES, PartJob, Uploader, UploadPart
from tierfs.engine.chunkstore.validate import check_etag, check_range


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


# Most neighbouring pieces of full size that a best plan uploads whole in a row. Of three, the middle one could be
# copied: those around it are long enough by themselves.
_ABSORBED = 2


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


# Small reads and checks of sources at once: they wait for the server, not for bytes (a guess).
SMALL_REQUESTS = 16

# Server-copied parts carry no CRC32C of ours, and an upload is of one kind: the others take Content-MD5.
_MIXED = Abilities(verifies_crc32c=False)


class Read(Protocol):
    """The part of ChunkStorage.read_into used here."""

    def __call__(self, name: str, offset: int, buffer: memoryview, *, if_match: str | None = None) -> None:
        """Fill `buffer`."""
        ...


class Composer:
    """Composes objects of one location. Thread-safe."""

    def __init__(
        self,
        connection: S3Connection,
        uploader: Uploader,
        read: Read,
        stat: Callable[[str], StoredObject],
        origin: S3Location | None = None,
    ) -> None:
        """`origin` is the place of the pieces, which `read` and `stat` look at; None: the one of the connection."""
        self._client = connection.client
        self._location = connection.location
        self._origin = origin or connection.location
        self._uploader = uploader
        self._read = read
        self._stat = stat
        self._pool = Pool(SMALL_REQUESTS, "tierfs-compose", connection.location.url())

    def compose(
        self, name: str, pieces: Sequence[ObjectPiece], metadata: Mapping[str, str], *, create_only: bool
    ) -> tuple[str, int]:
        """Store the bytes of `pieces`; return the etag ("" if not known yet) and the bytes uploaded by the client.

        Raises AlreadyExists, and DataLoss when an object is not the version that its piece names.
        """
        pieces = joined(pieces)
        parts = plan_parts([piece.length_bytes for piece in pieces])
        uploaded = client_bytes(parts)
        if len(parts) == 1 and uploaded and uploaded <= SINGLE_PUT_BYTES:
            source = BufferSource(self._gather(pieces, parts[0].slices))
            return self._uploader.upload(name, source, metadata, create_only=create_only).etag, uploaded
        jobs: list[PartJob] = [partial(self._make_part, name, pieces, part) for part in parts]
        copied = [pieces[cut.piece] for part in parts if part.copied for cut in part.slices]
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
        """Fail jobs that wait for a thread with Closed."""
        self._pool.close(wait=False)

    def _make_part(
        self, name: str, pieces: Sequence[ObjectPiece], part: ComposePart, upload_id: str, number: int
    ) -> UploadPart:
        if part.copied:
            return self._copy(name, pieces[part.slices[0].piece], part.slices[0], upload_id, number)
        return self._uploader.put_part(name, self._gather(pieces, part.slices), upload_id, number, _MIXED)

    def _copy(self, name: str, piece: ObjectPiece, cut: Slice, upload_id: str, number: int) -> UploadPart:
        start = piece.offset + cut.offset
        request: dict[str, Any] = {
            "CopySource": {"Bucket": self._origin.bucket, "Key": self._origin.key(piece.name)},
            "CopySourceRange": f"bytes={start}-{start + cut.length_bytes - 1}",
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
                etag = answer["CopyPartResult"]["ETag"]
        except AlreadyExists as exc:  # the meaning of a failed condition elsewhere
            self._require_version(piece.name, piece.etag, start + cut.length_bytes)  # raises with the current version
            raise DataLoss(f"{printable(piece.name)}: it was replaced: its etag is not {piece.etag}") from exc
        except InvalidRequest:
            # A range past the end is InvalidArgument for AWS and versitygw, as much else is; for Ceph, InvalidRange.
            self._require_version(piece.name, piece.etag, start + cut.length_bytes)
            raise
        return UploadPart({"PartNumber": number, "ETag": etag}, None)

    def _gather(self, pieces: Sequence[ObjectPiece], slices: Sequence[Slice]) -> bytes:
        """Return the bytes of slices in one buffer."""
        buffer = memoryview(bytearray(sum(cut.length_bytes for cut in slices)))
        jobs: list[Callable[[], None]] = []
        at = 0
        for cut in slices:
            piece = pieces[cut.piece]
            view = buffer[at : at + cut.length_bytes]
            jobs.append(partial(self._read, piece.name, piece.offset + cut.offset, view, if_match=piece.etag))
            at += cut.length_bytes
        self._pool.run(call, jobs)
        return bytes(buffer)

    def _require_unchanged(self, pieces: Iterable[ObjectPiece]) -> None:
        """Check that the copied versions are the requested ones. Some servers cut a range past the end."""
        ends: dict[tuple[str, str], int] = {}
        for piece in pieces:
            key = (piece.name, piece.etag)
            ends[key] = max(ends.get(key, 0), piece.offset + piece.length_bytes)
        self._pool.run(call, [partial(self._require_version, name, etag, end) for (name, etag), end in ends.items()])

    def _require_version(self, name: str, etag: str, end: int) -> None:
        stored = self._stat(name)
        check_etag(name, stored.etag, etag, stored.length_bytes)
        check_range(stored, 0, end)


def joined(pieces: Sequence[ObjectPiece]) -> list[ObjectPiece]:
    """Return the same bytes as the fewest pieces: neighbours in one object become one."""
    merged: list[ObjectPiece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last and (last.name, last.etag, last.offset + last.length_bytes) == (piece.name, piece.etag, piece.offset):
            merged[-1] = ObjectPiece(last.name, last.offset, last.length_bytes + piece.length_bytes, last.etag)
        else:
            merged.append(piece)
    return merged
