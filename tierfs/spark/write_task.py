"""One task of a write, on an executor: batches become segments below `uploads/`, and the driver is told of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from tierfs.background.batch_upload import SegmentUpload
from tierfs.composition.upload_spec import TaskUpload
from tierfs.composition.writing import WriteJob
from tierfs.metadata.batch_records import UploadedSegment
from tierfs.spark.write_columns import Columns, segment_name
from tierfs.types import MIB

_GATHERED_BYTES = 128 * MIB
"""Memory of one task for bytes that are not sent yet, of all its segments: a few large ones, or many small ones."""

_BATCH_DIGITS = 12
"""Of a job's id in the names of its segments: unique below one directory."""

_QUERY_ID = "sql.streaming.queryId"
"""A local property that Spark gives to the tasks of a stream: the id in its checkpoint."""


@dataclass(frozen=True, slots=True)
class TaskResult(WriterCommitMessage):
    """What a task tells the driver."""

    job: WriteJob
    uploaded: tuple[UploadedSegment, ...]
    query_id: str | None = None
    """Of the stream that the task belongs to."""


def write_batches(job: WriteJob, columns: Columns, batches: Iterable[Any]) -> TaskResult:
    """Upload all rows of a task. A task without rows makes no segment, and does not connect."""
    context = TaskContext.get()
    partition, query_id = (context.partitionId(), context.getLocalProperty(_QUERY_ID)) if context else (0, None)
    batches = iter(batches)
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return TaskResult(job, (), query_id)
    with job.upload.task(partition) as task:
        writing = _Writing(task, columns, partition, job.id[:_BATCH_DIGITS])
        writing.write(first)
        for batch in batches:
            writing.write(batch)
        return TaskResult(job, task.finish(), query_id)


class _Writing:
    """The open segments of one task, by name."""

    def __init__(self, task: TaskUpload, columns: Columns, partition: int, batch: str) -> None:
        self._task = task
        self._columns = columns
        self._partition = partition
        self._batch = batch
        self._open: dict[str, SegmentUpload] = {}

    def write(self, batch: Any) -> None:
        """Add the rows of a batch, each to its segment."""
        for key, data in self._columns.grouped(batch):
            self._upload(key).write(data)
        self._task.limit_memory(_GATHERED_BYTES)

    def _upload(self, key: str) -> SegmentUpload:
        name = segment_name(self._columns, key, self._partition, self._batch)
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = self._task.open(name)
        return found
