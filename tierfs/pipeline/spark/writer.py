"""`df.write.format("tierfs")`: executors upload, the driver commits all segments at once. See docs/spark.md.

Spark makes the writer, and commits with it, in two processes of the driver's machine; a writer's fields travel from
one to the other, and to the executors. On an executor, a task's batches become segments below `uploads/`, and the
driver gets a list of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tierfs.app.batches.executor import TaskUpload, WriteJob
from tierfs.app.batches.upload import SegmentUpload
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB
from tierfs.engine.metadata.batch_records import UploadedSegment
from tierfs.pipeline.spark.errors import explained
from tierfs.pipeline.spark.planning import open_store
from tierfs.pipeline.spark.write_columns import SEGMENT, Columns, segment_name
from tierfs.pipeline.spark.write_options import WriteOptions

# Memory of one task for unsent bytes, of all its segments: a few large ones, or many small ones.
_GATHERED_BYTES = 128 * MIB

# Of a job's id in the names of its segments: unique below one directory.
_BATCH_DIGITS = 12

# A local property that Spark sets for the tasks of a stream: the id in its checkpoint.
_QUERY_ID = "sql.streaming.queryId"

# The version of a write that is an application of its own.
_ALONE = 0


@dataclass(frozen=True, slots=True)
class TaskResult(WriterCommitMessage):
    """A task's report to the driver."""

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
    with job.task(partition) as task:
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
        upload = self._open.get(name)
        if upload is None:
            upload = self._open[name] = self._task.open(name)
        return upload


class TierfsWriter(DataSourceArrowWriter):
    """A batch. Begins its job when it is made, so that whatever prevents the write is raised before tasks start."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises the error of the options, the columns, the store or its bucket."""
        require_append(overwrite=overwrite)
        self._options = options
        self._columns = Columns.of(options, schema)
        self._job = begin(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Upload the rows of one task, on an executor."""
        with explained():
            return write_batches(self._job, self._columns, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make all segments, or nothing where this version of the application was committed before."""
        version = _ALONE if self._options.version is None else self._options.version
        with explained():
            commit(self._options, self._job, results(messages), version)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Turn the uploads into garbage."""
        with explained():
            abort(self._options, self._job)


def require_append(*, overwrite: bool) -> None:
    """Raise InvalidRequest for modes that would delete segments."""
    if overwrite:
        raise InvalidRequest(
            "tierfs only appends: mode('overwrite') and outputMode('complete') are not supported",
            remedy="use mode('append') into a new directory, and delete the old one afterwards: tierfs rm -r",
        )


def begin(options: WriteOptions) -> WriteJob:
    """Begin a write, and put one object to prove that executors can. Raises whatever prevents the write."""
    from tierfs.app.batches import driver  # the driver's part, here and below: executors only upload

    with open_store(options.where) as store:
        job = driver.begin(store, options.application, options.into, version=options.version, seal=options.seal)
        try:
            with job.task(0) as task:
                probe = task.open("probe")
                probe.write(b"probe")
                probe.finish()
                task.abort()
        except BaseException:
            driver.abort(store, job)
            raise
    return job


def commit(
    options: WriteOptions, job: WriteJob, done: Iterable[TaskResult], version: int, query_id: str | None = None
) -> None:
    """Make all segments that the tasks of a job uploaded. Raises what the commit raises."""
    from tierfs.app.batches import driver

    uploaded = [segment for result in done for segment in result.uploaded]
    _require_own_names(uploaded)
    with open_store(options.where) as store:
        driver.commit(store, job, uploaded, version, acknowledge=options.acknowledge, writer=query_id or "")


def abort(options: WriteOptions, job: WriteJob) -> None:
    """Give up a job."""
    from tierfs.app.batches import driver

    with open_store(options.where) as store:
        driver.abort(store, job)


def results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    """Return the reports of the tasks that ended well."""
    return [message for message in messages if isinstance(message, TaskResult)]


def _require_own_names(uploaded: Iterable[UploadedSegment]) -> None:
    seen: set[str] = set()
    for upload in uploaded:
        if upload.segment in seen:
            raise InvalidRequest(
                f"several tasks have rows of segment {printable(upload.segment)}; nothing was committed",
                remedy=f"write df.repartition('{SEGMENT}'), or write directories of segments by keyColumn",
            )
        seen.add(upload.segment)
