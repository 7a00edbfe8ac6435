"""What an executor needs to upload its part of a batch: picklable, and no store. Part of the composition root."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierfs import connect, names
from tierfs.background.batch_upload import SegmentUpload, UploadPlan
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.config import ColdSettings
from tierfs.metadata.batch_records import UploadedSegment
from tierfs.metadata.records import LocationRecord
from tierfs.metrics import NullMetrics


@dataclass(frozen=True, slots=True)
class UploadSpec:
    """One job, as its executors see it. Credentials are not in it: they come from the executor's own surroundings."""

    plan: UploadPlan
    location: LocationRecord
    cold: ColdSettings
    store: Path
    """Where a cold tier that is a directory may be relative to; executors must see it at the same path."""
    into: str

    @contextmanager
    def task(self, partition: int) -> Iterator[TaskUpload]:
        """Uploads of one task, connected. An error inside the block deletes all that the task uploaded."""
        storage = connect.connect(self.location, self.store, self.cold, NullMetrics(), sweeps=False)
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

    def __init__(self, storage: ChunkStorage, spec: UploadSpec, partition: int) -> None:
        self._storage = storage
        self._spec = spec
        self._partition = partition
        self._uploads: list[SegmentUpload] = []

    def open(self, name: str) -> SegmentUpload:
        """Begin a segment, named relative to the directory that the job writes to; `finish` it.

        Each one that is open holds up to `plan.object_bytes` in memory. Raises InvalidRequest for an impossible name.
        """
        full = names.join((*names.split(self._spec.into), *names.split(name)))
        upload = SegmentUpload(self._storage, self._spec.plan, self._partition, full)
        self._uploads.append(upload)
        return upload

    def limit_memory(self, limit_bytes: int) -> None:
        """Send what the largest open segments gathered until no more than so much is in memory."""
        gathered_bytes = sum(one.gathered_bytes for one in self._uploads)
        if gathered_bytes <= limit_bytes:
            return
        for upload in sorted(self._uploads, key=lambda one: one.gathered_bytes, reverse=True):
            gathered_bytes -= upload.gathered_bytes
            upload.send()
            if gathered_bytes <= limit_bytes // 2:
                return

    def finish(self) -> tuple[UploadedSegment, ...]:
        """Finish every segment that is open; returns all of the task's, for the driver to commit."""
        return tuple(upload.finish() for upload in self._uploads)

    def abort(self) -> None:
        """Delete all that the task uploaded, as far as that is possible."""
        for upload in self._uploads:
            upload.discard()

    def abort_unfinished(self) -> None:
        """The same for segments that were not finished."""
        for upload in self._uploads:
            upload.abort()
