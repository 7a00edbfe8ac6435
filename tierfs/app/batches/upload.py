"""An executor's part of a batch: upload the bytes of a segment as objects `uploads/<job>/…`, without a store at hand.

The bytes arrive in sequence and their number is not known in advance. They are gathered up to `object_bytes` and put
as one object each, so memory holds no more than that, and an upload needs only the rights of a put. Objects that
belong to no commit are garbage: the upload deletes as many as it can, `gc` finds the rest.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from types import TracebackType

from tierfs.base.bytes.checksum import Buffer, Stretch, grid_of
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.options.policy import Policy
from tierfs.base.words import object_names
from tierfs.base.words.errors import Closed, DataLoss, InvalidRequest, TierfsError
from tierfs.base.words.names import join, printable, split
from tierfs.base.words.types import MIB, AttemptId, Compression
from tierfs.engine.chunkstore.protocol import BufferSource, ChunkStorage, Source
from tierfs.engine.chunkstore.validate import ATTEMPT_KEY
from tierfs.engine.metadata import checksums
from tierfs.engine.metadata.batch_records import NO_FILE, UploadedFrames, UploadedObject, UploadedSegment
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.metadata.records import RECORD_VERSION
from tierfs.engine.metadata.store import new_id
from tierfs.tiering.compressed_source import CompressedSource, compressed
from tierfs.tiering.objects import JOBS_PREFIX

log = logging.getLogger(__name__)

# Largest object of a batch, as it is gathered in memory; consolidation makes larger ones if the policy allows.
MAX_OBJECT_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class UploadPlan:
    """Parameters of a job's uploads; sent to its executors."""

    store_id: str
    store_epoch: int
    job: str
    object_bytes: int
    compression: Compression = Compression.OFF
    compression_level: int = 3

    @property
    def policy(self) -> Policy:
        """The policy of the objects, as far as tasks need it: their compression."""
        return Policy(compression=self.compression, compression_level=self.compression_level)

    @property
    def prefix(self) -> str:
        """Prefix of the names of the job's objects."""
        return job_prefix(self.job)


def job_prefix(job: str) -> str:
    """Return the prefix of the names of a job's objects."""
    return f"{JOBS_PREFIX}{job}/"


class SegmentUpload:
    """Upload of one segment. Not thread-safe; end it with `finish`, `abort`, or an error inside its block."""

    def __init__(
        self, storage: ChunkStorage, plan: UploadPlan, partition: int, segment: str, file: IngestedFile = NO_FILE
    ) -> None:
        """Begin an upload; nothing is sent yet. Raises InvalidRequest for a name that no segment can have."""
        parts = split(segment)
        if not parts or partition < 0:
            raise InvalidRequest(f"partition {partition} cannot write segment {printable(segment)!r}")
        self.segment = join(parts)
        self._storage = storage
        self._plan = plan
        self._file = file
        self._upload = AttemptId(new_id())
        self._where = f"{plan.prefix}{partition:08d}-{self._upload}"
        self._gathered = bytearray()
        self._objects: list[UploadedObject] = []
        self._sent: list[str] = []
        self._whole = Stretch()
        self._discarded = False
        self._result: UploadedSegment | None = None

    @property
    def length(self) -> int:
        """Bytes written so far."""
        return self._whole.length_bytes + len(self._gathered)

    @property
    def gathered_bytes(self) -> int:
        """Bytes in memory, not sent yet."""
        return len(self._gathered)

    def write(self, data: Buffer) -> None:
        """Add bytes. Raises storage errors; then the upload is aborted."""
        self._require_open()
        view = memoryview(data).cast("B")
        while view:
            room = self._plan.object_bytes - len(self._gathered)
            self._gathered += view[:room]
            view = view[room:]
            if len(self._gathered) >= self._plan.object_bytes:
                self._or_abort(self._send)

    def send(self) -> None:
        """Send the gathered bytes now, as a smaller object. Raises as `write`."""
        self._require_open()
        if self._gathered:
            self._or_abort(self._send)

    def finish(self) -> UploadedSegment:
        """Send the rest and return the record for the driver's commit; idempotent. Raises as `write`."""
        if self._result is None:
            self.send()
            self._result = UploadedSegment(self.segment, tuple(self._objects), self._whole.crc32c, self._file)
        return self._result

    def abort(self) -> None:
        """Discard an upload that is not finished; idempotent."""
        if self._result is None:
            self.discard()

    def discard(self) -> None:
        """Delete the uploaded objects, finished or not, as far as possible; idempotent."""
        self._discarded, self._result = True, None
        self._gathered = bytearray()
        sent, self._sent = self._sent, []
        for name in sent:
            with suppress(TierfsError):
                self._storage.delete(name)

    def _or_abort(self, send: Callable[[], None]) -> None:
        try:
            send()
        except BaseException as exc:
            log.info("upload of %s stopped: %s", printable(self.segment), exc)
            self.abort()
            raise

    def _send(self) -> None:
        """Put the gathered bytes as one object."""
        data, self._gathered = self._gathered, bytearray()
        grid = grid_of([data])
        start, crc = self._whole.length_bytes, grid.crc32c
        end = start + len(data)
        attempt = AttemptId(new_id())
        name = f"{self._where}-{start:020d}-{end:020d}-e{self._plan.store_epoch}-c{crc:08x}"
        plain = BufferSource(data)
        packed = compressed(plain, self._plan.policy)
        metadata, frames = self._describe(start, end, attempt, crc), None
        if packed is None:
            etag = self._put(name, plain, metadata)
        else:
            with closing(packed):
                name, frames = name + object_names.COMPRESSED, _frames(packed)
                etag = self._put(name, packed, metadata)
        crcs = checksums.pack(grid.grid())
        self._objects.append(UploadedObject(name, len(data), etag, crc, crcs, attempt, frames))
        self._whole = self._whole.then(Stretch(len(data), crc))

    def _put(self, name: str, source: Source, metadata: Mapping[str, str]) -> str:
        """Put an object, and return its etag."""
        self._sent.append(name)  # first: an object may exist after an error
        stored, size_bytes = self._storage.put(name, source, metadata=metadata), source.length_bytes
        if stored.length_bytes != size_bytes:
            raise DataLoss(f"{name}: {stored.length_bytes} of {size_bytes} bytes arrived", remedy="run the job again")
        return stored.etag

    def _describe(self, start: int, end: int, attempt: AttemptId, crc: int) -> dict[str, str]:
        """Return an object's user metadata, like that of an offload; the segment has no id yet."""
        return {
            "format": str(RECORD_VERSION),
            "store": self._plan.store_id,
            "job": self._plan.job,
            "name": base64.urlsafe_b64encode(self.segment.encode()).decode("ascii"),
            "start": str(start),
            "end": str(end),
            "epoch": str(self._plan.store_epoch),
            ATTEMPT_KEY: attempt,
            "crc32c": f"{crc:08x}",
        }

    def _require_open(self) -> None:
        if self._discarded or self._result is not None:
            raise Closed(f"the upload of {printable(self.segment)} stopped")

    def __enter__(self) -> SegmentUpload:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


def _frames(packed: CompressedSource) -> UploadedFrames:
    return UploadedFrames(checksums.pack(packed.frames.stored_lengths), packed.length_bytes, packed.crc32c)
