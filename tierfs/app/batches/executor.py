"""A distributed write as its executors see it: plain data of the job, and the uploads of one task.

Executors import this, and nothing of the store that the driver opens (`driver`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from tierfs.app.batches.upload import SegmentUpload, UploadPlan
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words import names
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata.batch_records import NO_FILE, UploadedSegment
from tierfs.engine.metadata.record_parts import IngestedFile


class Acknowledge(StrEnum):
    """The durability at which a commit is reported."""

    JOURNAL = "journal"
    """The bucket's journal names every segment, so that the write outlives this disk."""
    LOCAL = "local"
    """The store's metadata name them; one attempt to publish is made, and its failure is only logged."""


@dataclass(frozen=True, slots=True)
class WriteJob:
    """One write of an application, for its driver and executors. Picklable.

    It has no credentials: they are those of the environment.
    """

    application: str
    seal: bool
    plan: UploadPlan
    place: Place
    """Where the objects go; if it is a directory, executors must see it at the same path."""
    into: str

    @property
    def id(self) -> str:
        """Names the job's objects, `uploads/<id>/…`."""
        return self.plan.job

    @contextmanager
    def task(self, partition: int) -> Iterator[TaskUpload]:
        """Connect for the uploads of one task. An error inside the block deletes all that the task uploaded."""
        storage = self.place.shared(NullMetrics(), sweeps=False)
        try:
            task = TaskUpload(storage, self, partition)
            try:
                yield task
            except BaseException:
                task.abort()
                raise
            task.abort_unfinished()
        finally:
            storage.close()


class TaskUpload:
    """The segments that one task writes. Not thread-safe."""

    def __init__(self, storage: ChunkStorage, job: WriteJob, partition: int) -> None:
        self._storage = storage
        self._job = job
        self._partition = partition
        self._uploads: list[SegmentUpload] = []

    def open(self, name: str, file: IngestedFile = NO_FILE) -> SegmentUpload:
        """Begin a segment, named relative to the directory that the job writes to; `finish` it.

        Each one that is open holds up to `plan.object_bytes` in memory. Raises InvalidRequest for an impossible name.
        """
        full = names.join((*names.split(self._job.into), *names.split(name)))
        upload = SegmentUpload(self._storage, self._job.plan, self._partition, full, file)
        self._uploads.append(upload)
        return upload

    def limit_memory(self, limit_bytes: int) -> None:
        """Send what the largest open segments gathered until no more than so much is in memory."""
        gathered_bytes = sum(upload.gathered_bytes for upload in self._uploads)
        if gathered_bytes <= limit_bytes:
            return
        for upload in sorted(self._uploads, key=lambda upload: upload.gathered_bytes, reverse=True):
            gathered_bytes -= upload.gathered_bytes
            upload.send()
            if gathered_bytes <= limit_bytes // 2:
                return

    def finish(self) -> tuple[UploadedSegment, ...]:
        """Finish every segment that is open; return all of the task's, for the driver to commit."""
        return tuple(upload.finish() for upload in self._uploads)

    def abort(self) -> None:
        """Delete all that the task uploaded, as far as that is possible."""
        for upload in self._uploads:
            upload.discard()

    def abort_unfinished(self) -> None:
        """Delete the segments that were not finished."""
        for upload in self._uploads:
            upload.abort()
