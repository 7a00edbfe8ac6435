"""Compose one object of ranges of others: the server copies long ranges, the client uploads the rest.

`compose_plan` decides which part is which. Servers may ignore the condition on a copy's source (many do), so the
sources are checked again when all parts are made: all copies were then made from the requested versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import call
from typing import Any, Protocol

from tierfs.base.bytes.parallel import Pool
from tierfs.base.words.errors import AlreadyExists, DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.chunkstore.protocol import Abilities, BufferSource, ObjectPiece, StoredObject
from tierfs.engine.chunkstore.s3.client import S3Connection
from tierfs.engine.chunkstore.s3.compose_plan import ComposePart, Slice, client_bytes, plan_parts
from tierfs.engine.chunkstore.s3.errors import map_s3_errors
from tierfs.engine.chunkstore.s3.location import S3Location
from tierfs.engine.chunkstore.s3.upload import SINGLE_PUT_BYTES, PartJob, Uploader, UploadPart
from tierfs.engine.chunkstore.validate import check_etag, check_range

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
