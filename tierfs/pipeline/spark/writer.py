"""`df.write.format("tierfs")`: executors upload, the driver commits all segments at once. See docs/spark.md.

Spark makes the writer, and commits with it, in two processes of the driver's machine; a writer's fields travel from
one to the other, and to the executors. On an executor, a task's batches become segments below `uploads/`, and the
driver gets a list of them.

The columns of a data frame that are written, and their bytes: Arrow does it, no row becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from tierfs.app.upload_task import TaskUpload, WriteJob
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import join, printable, split
from tierfs.base.words.types import MIB
from tierfs.engine.metadata.batch_records import UploadedSegment
from tierfs.pipeline.spark.errors import explained
from tierfs.pipeline.spark.planning import open_store
from tierfs.pipeline.spark.row_types import RowType
from tierfs.pipeline.spark.write_options import WriteOptions
from tierfs.tiering.batch_upload import SegmentUpload

# The column that names the segment of a row itself.
SEGMENT = "segment"

_DATA = {RowType.LINES: "value", RowType.BYTES: "content"}


@dataclass(frozen=True, slots=True)
class Columns:
    """Places of columns in the batches of a write. Picklable."""

    data: int
    key: int | None
    """The column whose value names a row's target; None: all rows of a task make one segment."""
    named: bool
    """Whether that value is the segment's own name, not that of a directory."""
    separator: bytes

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType, *, stream: bool = False) -> Columns:
        """Find the columns of a data frame. Raises InvalidRequest for one too many, missing or of another type."""
        fields = {field.name: (at, field.dataType) for at, field in enumerate(schema.fields)}
        name = _DATA[options.row_type]
        if len(fields) != len(schema.fields):
            raise InvalidRequest("two columns have the same name", remedy=f"select {name} and, if wanted, {SEGMENT}")
        key = _key(options, fields, stream=stream)
        rest = [column for column in fields if column != key]
        if len(rest) != 1:
            given = ", ".join(map(printable, rest)) or "none"
            raise InvalidRequest(
                f"rows of type {options.row_type} are one column, {name}, besides {SEGMENT} or keyColumn, not {given}",
                remedy=f"select or concatenate to one: df.select(to_json(struct('*')).alias('{name}'))",
            )
        at, kind = fields[rest[0]]
        wanted = (StringType, BinaryType) if options.row_type is RowType.LINES else (BinaryType,)
        if not isinstance(kind, wanted):
            raise _wrong_type(rest[0], kind, " or ".join(allowed.typeName() for allowed in wanted))
        place = None if key is None else fields[key][0]
        return cls(at, place, key is not None and options.key_column is None, options.separator)

    def grouped(self, batch: Any) -> Iterator[tuple[str, memoryview]]:
        """Return the bytes of a batch's rows by key, in the order of the rows; "" is the key without a key column.

        Raises InvalidRequest for a row without a key.
        """
        data = batch.column(self.data).cast(pa.large_binary())
        if self.key is None:
            yield "", self._packed(data)
            return
        keys = batch.column(self.key)
        if keys.null_count:
            name = printable(batch.schema.names[self.key])
            raise InvalidRequest(f"a row has no {name}, so it has no place", remedy="filter or fill such rows")
        encoded = keys.dictionary_encode()
        named, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        if len(named) == 1:
            yield named[0], self._packed(data)
            return
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(named)))
        data = data.take(pa.array(order))
        for key, start, end in zip(named, [0, *ends[:-1]], ends, strict=True):
            yield key, self._packed(data[start:end])

    def _packed(self, data: Any) -> memoryview:
        """Return rows back to back, each followed by the separator; one without a value is an empty one."""
        if data.null_count:
            data = data.fill_null(b"")
        if self.separator:
            nothing, separator = (pa.scalar(value, pa.large_binary()) for value in (b"", self.separator))
            data = pc.binary_join_element_wise(data, nothing, separator)
        _, offsets, content = data.buffers()
        if content is None or not len(data):
            return memoryview(b"")
        places = np.frombuffer(offsets, np.int64)[data.offset : data.offset + len(data) + 1]
        return memoryview(content)[int(places[0]) : int(places[-1])]


def segment_name(columns: Columns, key: str, partition: int, batch: str) -> str:
    """Return the name, relative to the target directory, of the segment that one task writes for one key."""
    return key if columns.named else join((*split(key), f"part-{partition:05d}-{batch}"))


def _key(options: WriteOptions, fields: dict[str, tuple[int, DataType]], *, stream: bool) -> str | None:
    name = options.key_column
    if name is None:
        if SEGMENT not in fields:
            return None
        name = SEGMENT
        if stream:
            raise InvalidRequest(
                f"a stream makes new segments with each batch, so that a column {SEGMENT} cannot name them",
                remedy=f".option('keyColumn', '{SEGMENT}') writes into directories of these names",
            )
    if name not in fields:
        raise InvalidRequest(
            f"there is no column {printable(name)}, which keyColumn names", remedy=f"there are {_listed(fields)}"
        )
    if not isinstance(fields[name][1], StringType):
        raise _wrong_type(name, fields[name][1], "string")
    return name


def _wrong_type(name: str, kind: DataType, wanted: str) -> InvalidRequest:
    return InvalidRequest(
        f"the column {printable(name)} is {kind.simpleString()}, not {wanted}", remedy=f"cast it to {wanted}"
    )


def _listed(fields: dict[str, tuple[int, DataType]]) -> str:
    return ", ".join(map(printable, fields))


# Memory of one task for unsent bytes, of all its segments: a few large ones, or many small ones.
_GATHERED_BYTES = 128 * MIB

# Of a job's id in the names of its segments: unique below one directory.
_BATCH_DIGITS = 12

# A local property that Spark sets for the tasks of a stream: the id in its checkpoint.
_QUERY_ID = "sql.streaming.queryId"


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


# The version of a write that is an application of its own.
_ALONE = 0


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
            "tierfs only appends, so mode('overwrite') and outputMode('complete') are refused",
            remedy="use mode('append') into a new directory, and delete the old one afterwards: tierfs rm -r",
        )


def begin(options: WriteOptions) -> WriteJob:
    """Begin a write, and put one object to prove that executors can. Raises whatever prevents the write."""
    from tierfs.app import batch_write  # the driver's part, here and below: executors only upload

    with open_store(options.where) as store:
        job = batch_write.begin(store, options.application, options.into, version=options.version, seal=options.seal)
        try:
            with job.task(0) as task:
                probe = task.open("probe")
                probe.write(b"probe")
                probe.finish()
                task.abort()
        except BaseException:
            batch_write.abort(store, job)
            raise
    return job


def commit(
    options: WriteOptions, job: WriteJob, done: Iterable[TaskResult], version: int, query_id: str | None = None
) -> None:
    """Make all segments that the tasks of a job uploaded. Raises what the commit raises."""
    from tierfs.app import batch_write

    uploaded = [segment for result in done for segment in result.uploaded]
    _require_own_names(uploaded)
    with open_store(options.where) as store:
        batch_write.commit(store, job, uploaded, version, acknowledge=options.acknowledge, writer=query_id or "")


def abort(options: WriteOptions, job: WriteJob) -> None:
    """Give up a job."""
    from tierfs.app import batch_write

    with open_store(options.where) as store:
        batch_write.abort(store, job)


def results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    """Return the reports of the tasks that ended well."""
    return [message for message in messages if isinstance(message, TaskResult)]


def _require_own_names(uploaded: Iterable[UploadedSegment]) -> None:
    seen: set[str] = set()
    for upload in uploaded:
        if upload.segment in seen:
            raise InvalidRequest(
                f"several tasks have rows of segment {printable(upload.segment)}, so nothing was committed",
                remedy=f"write df.repartition('{SEGMENT}'), or directories of several segments: keyColumn",
            )
        seen.add(upload.segment)
