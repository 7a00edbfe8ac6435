"""Making one object of ranges of others: the server copies what is long enough, the rest comes by here.

Servers may ignore the condition on a copy's source (many do), so the sources are looked at once more when all
parts are made: what was copied before that was copied from the versions asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import call
from typing import Any, Protocol

from tierfs.chunkstore.checks import check_etag, check_range
from tierfs.chunkstore.compose_plan import Part as PlannedPart
from tierfs.chunkstore.compose_plan import Slice, client_bytes, plan_parts
from tierfs.chunkstore.protocol import Abilities, BufferSource, ObjectPiece, StoredObject
from tierfs.chunkstore.s3_client import S3Connection
from tierfs.chunkstore.s3_errors import map_s3_errors
from tierfs.chunkstore.s3_upload import SINGLE_PUT_BYTES, Part, PartJob, Uploader
from tierfs.errors import AlreadyExists, DataLoss
from tierfs.names import printable
from tierfs.parallel import Pool

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
        self, name: str, pieces: Sequence[ObjectPiece], part: PlannedPart, upload_id: str, number: int
    ) -> Part:
        if part.copied:
            return self._copy(name, pieces[part.slices[0].piece], part.slices[0], upload_id, number)
        return self._uploader.put_part(name, self._gather(pieces, part.slices), upload_id, number, _MIXED)

    def _copy(self, name: str, piece: ObjectPiece, one: Slice, upload_id: str, number: int) -> Part:
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
        return Part({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]}, None)

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
