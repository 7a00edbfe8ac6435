"""`df.write.format("tierfs")`: executors upload, the driver commits all segments at once. See docs/spark.md.

Spark makes the writer, and commits with it, in two processes of the driver's machine; what a writer holds goes from
one to the other, and to the executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tierfs.composition import writing
from tierfs.composition.writing import WriteJob
from tierfs.errors import InvalidRequest
from tierfs.metadata.batch_records import UploadedSegment
from tierfs.names import printable
from tierfs.spark.errors import explained
from tierfs.spark.planning import open_store
from tierfs.spark.write_columns import SEGMENT, Columns
from tierfs.spark.write_options import WriteOptions
from tierfs.spark.write_task import TaskResult, write_batches

_ALONE = 0
"""The version of a write that is an application of its own."""


class TierfsWriter(DataSourceArrowWriter):
    """A batch. Begins its job when it is made, so that what makes the write impossible is said before tasks start."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises what is wrong with the options, the columns, the store or its bucket."""
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
        """Make what was uploaded garbage."""
        with explained():
            abort(self._options, self._job)


def require_append(*, overwrite: bool) -> None:
    """Refuse what would delete segments."""
    if overwrite:
        raise InvalidRequest(
            "tierfs only appends, so mode('overwrite') and outputMode('complete') are refused",
            remedy="use mode('append') into a new directory, and delete the old one afterwards: tierfs rm -r",
        )


def begin(options: WriteOptions) -> WriteJob:
    """Begin a write, and put one object to see that executors can. Raises what makes it impossible."""
    with open_store(options.where) as store:
        job = writing.begin(store, options.application, options.into, seal=options.seal)
        try:
            with job.upload.task(0) as task:
                probe = task.open("probe")
                probe.write(b"probe")
                probe.finish()
                task.abort()
        except BaseException:
            writing.abort(store, job)
            raise
    return job


def commit(options: WriteOptions, job: WriteJob, done: Iterable[TaskResult], version: int) -> None:
    """Make all segments that the tasks of a job uploaded. Raises what the commit raises."""
    uploaded = [segment for one in done for segment in one.uploaded]
    _require_own_names(uploaded)
    with open_store(options.where) as store:
        writing.commit(store, job, uploaded, version)


def abort(options: WriteOptions, job: WriteJob) -> None:
    """Give up a job."""
    with open_store(options.where) as store:
        writing.abort(store, job)


def results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    """What those tasks told that ended well."""
    return [one for one in messages if isinstance(one, TaskResult)]


def _require_own_names(uploaded: Iterable[UploadedSegment]) -> None:
    seen: set[str] = set()
    for one in uploaded:
        if one.segment in seen:
            raise InvalidRequest(
                f"several tasks have rows of segment {printable(one.segment)}, so nothing was committed",
                remedy=f"write df.repartition('{SEGMENT}'), or directories of several segments: keyColumn",
            )
        seen.add(one.segment)
