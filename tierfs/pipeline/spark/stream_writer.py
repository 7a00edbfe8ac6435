"""`df.writeStream.format("tierfs")`: each batch of a stream is one commit, exactly once. Needs PySpark 4.1.

Spark makes one writer for the tasks of a batch, and another for its commit, which gets the job from the tasks. The
version of a commit is the batch's number, which a restart from the checkpoint repeats. The application is the query's
id in the checkpoint, unless txnAppId names it: a new checkpoint counts from 0 again, and has another id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tierfs.app.batches.executor import WriteJob
from tierfs.base.words.errors import Conflict, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.pipeline.spark.errors import explained
from tierfs.pipeline.spark.planning import open_store
from tierfs.pipeline.spark.write_columns import Columns
from tierfs.pipeline.spark.write_options import WriteOptions
from tierfs.pipeline.spark.writer import TaskResult, abort, begin, commit, require_append, results, write_batches


class TierfsStreamWriter(DataSourceStreamArrowWriter):
    """One batch of a stream."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool, commits: bool) -> None:
        """Begin a job, unless it `commits`. Raises the error of the options, columns, the store or its bucket."""
        require_append(overwrite=overwrite)
        self._options = options
        self._columns = Columns.of(options, schema, stream=True)
        self._job: WriteJob | None = None if commits else begin(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Upload the rows of one task, on an executor."""
        with explained():
            assert self._job is not None  # Spark sends tasks the writer that began a job
            return write_batches(self._job, self._columns, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make all segments of a batch, or nothing where it was committed before."""
        with explained():
            done = results(messages)
            application = self._application(done)
            self._require_newest(application, batchId)
            query_id = next((result.query_id for result in done if result.query_id), None)
            commit(self._options, replace(done[0].job, application=application), done, batchId, query_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Turn the uploads into garbage; if no task ended well, `gc` does, because no report names the job."""
        with explained():
            for result in results(messages)[:1]:
                abort(self._options, result.job)

    def _application(self, done: Sequence[TaskResult]) -> str:
        """Return the application name for the batches of this stream."""
        if self._options.application is not None:
            return self._options.application
        query_id = next((result.query_id for result in done if result.query_id), None)
        if query_id is None:
            raise InvalidRequest("Spark does not provide the query's id", remedy="set the option txnAppId")
        return f"spark query {query_id}"

    def _require_newest(self, application: str, batch: int) -> None:
        """Refuse an older batch: Spark repeats only the last, so it is of another checkpoint and would be lost."""
        from tierfs.app.batches import driver

        with open_store(self._options.where) as store:
            if not driver.is_committed(store, application, batch + 1):
                return
        raise Conflict(
            f"batch {batch} of {printable(application)} arrived after batch {batch + 1} was committed: the checkpoint "
            "is new or older",
            remedy="set another txnAppId, or use the checkpoint that belongs to it",
        )
