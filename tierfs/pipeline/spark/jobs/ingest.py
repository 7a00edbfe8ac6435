"""The job `ingest`: files, or the rows of a data frame by key, become segments; executors upload, one commit makes all.

Exactly once per application and version: a job that is run again with the same ones changes nothing. The files and
the names of their segments are determined on the driver, before tasks start.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from tierfs.app.batches import driver
from tierfs.app.batches.executor import Acknowledge, WriteJob
from tierfs.app.batches.job import Written
from tierfs.app.store import Store
from tierfs.base.bytes import ranges
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.system.os_errors import map_os_errors
from tierfs.base.words import names
from tierfs.base.words.errors import AlreadyExists, Conflict, InvalidRequest, NotFound, TierfsError
from tierfs.base.words.types import MIB
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.batch_records import UploadedSegment
from tierfs.engine.metadata.record_parts import IngestedFile
from tierfs.engine.segments.copied_directories import CopiedDirectories, name_of_copy
from tierfs.pipeline.spark.jobs.result import Result
from tierfs.pipeline.spark.jobs.tasks import Counter, TaskError, Tasks, error_text, explained

TASK_BYTES = 128 * MIB
_OPEN_COST_BYTES = MIB
_SHOWN = 3
COLUMNS = {"segment": "string", "bytes": "long"}
_STEP_BYTES = 4 * MIB

# Segments of one commit.
_MOST_KEYS = 100_000

Uploaded = tuple[UploadedSegment, ...]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file at the time the job was planned."""

    path: str
    name: str
    """Of the segment, below the directory that the job writes to."""
    size_bytes: int
    modified_ns: int
    mode: int = 0

    def require_unchanged(self, read_bytes: int) -> None:
        """Raise Conflict for a file that was written to since it was listed."""
        status = os.stat(self.path)
        if (status.st_size, status.st_mtime_ns) != (self.size_bytes, self.modified_ns) or read_bytes != self.size_bytes:
            raise Conflict(f"{names.printable(self.path)} changed while it was read", remedy="run the job again")


def files_of(sources: Sequence[str]) -> list[SourceFile]:
    """Return files by their names, and those below directories by their paths in them, in order, without links in them.

    A directory beside other sources keeps its name, as with `cp -r`. Raises NotFound, and InvalidRequest for a name
    that no segment can have and for two files of one name.
    """
    copies = {source: name_of_copy(source) if len(sources) > 1 else "" for source in sources}
    files = [file for source in sources for file in _below(Path(os.path.abspath(source)), source, copies[source])]
    by_name: dict[str, SourceFile] = {}
    for file in files:
        other = by_name.setdefault(file.name, file)
        if other is not file:
            raise InvalidRequest(
                f"{names.printable(other.path)} and {names.printable(file.path)} would both become {file.name}",
                remedy="ingest them into two directories",
            )
    return files


def directories_of(sources: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the directories among sources and below them, also empty ones: the source, the path in it, and its name."""
    for source in sources:
        directory, copy = os.path.abspath(source), name_of_copy(source) if len(sources) > 1 else ""
        for root, _, _ in os.walk(directory, onerror=_raise) if os.path.isdir(directory) else ():
            yield directory, "" if root == directory else f"{os.path.relpath(root, directory)}/", copy


def require_new(store: Store, into: str, wanted: Iterable[str]) -> None:
    """Raise AlreadyExists if any of these names, relative to `into`, exists in the store."""
    taken = list(existing(store, into, wanted))
    if taken:
        shown = ", ".join(map(names.printable, taken[:_SHOWN])) + (" …" if len(taken) > _SHOWN else "")
        raise AlreadyExists(
            f"{len(taken)} of the segments already exist: {shown}", remedy="skip them with --skip-existing"
        )


def existing(store: Store, into: str, wanted: Iterable[str]) -> Iterator[str]:
    """Return full names that exist in the store. Raises InvalidRequest for a name that no segment can have."""
    above = names.split(into)
    with store.metadata.read() as txn:
        for name in wanted:
            full = names.join((*above, *names.split(name)))
            if directories.find(txn, full) is not None:
                yield full


def tasks_of(files: Iterable[SourceFile], task_bytes: int = TASK_BYTES) -> list[tuple[SourceFile, ...]]:
    """Return tasks: small files together; a large one, which only one task can write, alone and first."""
    largest_first = sorted(files, key=lambda file: -file.size_bytes)
    packed = ranges.groups(largest_first, lambda file: file.size_bytes + _OPEN_COST_BYTES, task_bytes)
    return [tuple(task) for task in packed]


def _below(path: Path, given: str, copy: str) -> Iterator[SourceFile]:
    if not path.exists():
        raise NotFound(
            f"{names.printable(given)} does not exist", remedy="specify files and directories of this machine"
        )
    if path.is_file():
        yield _file(path, path.name)
        return
    for root, inner, files in os.walk(path, onerror=_raise):
        inner.sort()
        for name in sorted(files):
            file = Path(root, name)
            if file.is_file() and not file.is_symlink():
                yield _file(file, os.path.join(copy, file.relative_to(path)))


def _file(path: Path, name: str) -> SourceFile:
    status, own = path.stat(), names.join(names.split(names.from_os(name)))
    return SourceFile(str(path), own, status.st_size, status.st_mtime_ns, status.st_mode)


def _raise(error: OSError) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class Batch:
    """Makes a job happen once: versions of an application ascend. Without one the job counts as new each time."""

    application: str | None = None
    version: int = 0
    acknowledge: Acknowledge = Acknowledge.JOURNAL


def ingest_files(
    spark: SparkSession,
    store: Store,
    sources: Sequence[str],
    into: str,
    *,
    batch: Batch | None = None,
    skip_existing: bool = False,
    seal: bool = True,
    show: OnProgress = unseen,
) -> Result:
    """Make a segment of each file, below the directory `into`; executors have to see the files at the same paths.

    Raises AlreadyExists for existing segments unless they are to be skipped, Conflict for a file that changes.
    """
    batch = batch or Batch()
    if (before := _written_before(store, batch)) is not None:
        return before
    files = files_of(sources)
    skipped = set(existing(store, into, (file.name for file in files))) if skip_existing else set()
    above = names.split(into)
    wanted = [file for file in files if names.join((*above, *names.split(file.name))) not in skipped]
    require_new(store, into, (file.name for file in wanted))
    copied = CopiedDirectories(into)
    for directory, below, copy in directories_of(sources):
        copied.add(directory, below, copy)
    tasks = Tasks(spark, show, sum(file.size_bytes for file in wanted))

    def upload(job: WriteJob) -> list[Uploaded]:
        uploaded = tasks.run(partial(upload_files, job), list(enumerate(tasks_of(wanted))))
        copied.write(store.metadata)  # before the commit, after which the files can be read
        return uploaded

    return _committed(store, into, batch, upload, seal=seal, skipped=len(skipped))


def ingest(
    frame: DataFrame,
    store: Store,
    into: str,
    *,
    key: str,
    value: str = "value",
    order_by: Sequence[str] = (),
    batch: Batch | None = None,
    seal: bool = True,
) -> Result:
    """Make a segment of all rows with the same `key`, which names it below `into`; `value` is a string or binary.

    A string becomes a line; binary values stand back to back. Rows are in the order of `order_by`, else in any.
    Raises InvalidRequest for columns, keys or values that cannot be written, AlreadyExists for existing segments.
    """
    batch = batch or Batch()
    if (before := _written_before(store, batch)) is not None:
        return before
    _require_columns(frame, key, value, order_by)
    with explained():
        order = {f"order{number}": F.col(name) for number, name in enumerate(order_by)}
        renamed = {"key": F.col(key).cast("string"), "value": F.col(value), **order}  # a column may have two uses
        keyed = frame.select(*(column.alias(name) for name, column in renamed.items()))
        keys = [row[0] for row in keyed.select("key").distinct().limit(_MOST_KEYS + 1).collect()]
    _require_keys(store, into, keys)
    ends_lines = isinstance(frame.schema[value].dataType, StringType)

    def upload(job: WriteJob) -> list[Uploaded]:
        write = partial(upload_rows, job, ends_lines)
        with explained():
            spread = keyed.repartition("key").sortWithinPartitions("key", *order).select("key", "value")
            return [pickle.loads(row[0]) for row in spread.mapInArrow(write, "uploaded binary").collect()]

    return _committed(store, into, batch, upload, seal=seal, skipped=0)


def upload_files(job: WriteJob, task: tuple[int, tuple[SourceFile, ...]], done: Counter) -> Uploaded:
    """Upload the files of one task, on an executor."""
    number, files = task
    with job.task(number) as upload:
        for listed in files:
            file = IngestedFile(mode=listed.mode, modified_ns=listed.modified_ns, length=listed.size_bytes)
            segment, read_bytes = upload.open(listed.name, file), 0
            with map_os_errors(listed.path), open(listed.path, "rb") as source:
                while data := source.read(_STEP_BYTES):
                    segment.write(data)
                    read_bytes += len(data)
                    done.add(len(data))
                listed.require_unchanged(read_bytes)
            segment.finish()
        return upload.finish()


def upload_rows(job: WriteJob, ends_lines: bool, batches: Iterable[Any]) -> Iterator[Any]:
    """Upload the rows of one task, sorted by key, on an executor. Yields one row with the pickled uploads."""
    context = TaskContext.get()
    assert context is not None
    try:
        with job.task(context.partitionId()) as upload:
            key, segment = None, None
            for name, data in _runs(batches, ends_lines):
                if name != key:
                    if segment is not None:
                        segment.finish()  # frees its memory
                    key, segment = name, upload.open(name)
                assert segment is not None
                segment.write(data)
            uploaded = upload.finish()
    except TierfsError as exc:
        raise TaskError(error_text(exc)) from None
    yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(uploaded)], pa.binary())], ["uploaded"])


def _runs(batches: Iterable[Any], ends_lines: bool) -> Iterator[tuple[str, bytes]]:
    """Yield keys, and the bytes of neighbouring rows that have them."""
    for batch in batches:
        if batch.column(1).null_count:
            raise InvalidRequest("a value is null", remedy="remove such rows: frame.dropna()")
        keys, values = batch.column(0), batch.column(1).cast(pa.large_binary())
        ends = pc.run_end_encode(keys)
        start = 0
        for end, name in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
            rows = values.slice(start, end - start).to_pylist()
            yield name, b"".join(row + b"\n" for row in rows) if ends_lines else b"".join(rows)
            start = end


def _committed(
    store: Store,
    into: str,
    batch: Batch,
    upload: Callable[[WriteJob], list[Uploaded]],
    *,
    seal: bool,
    skipped: int,
) -> Result:
    """Run the tasks and commit their uploads; after an error these are garbage."""
    job = driver.begin(store, batch.application, into, seal=seal)
    try:
        uploaded = [segment for some in upload(job) for segment in some]
        done = driver.commit(store, job, uploaded, batch.version, acknowledge=batch.acknowledge)
    except BaseException:
        driver.abort(store, job)
        raise
    rows = [] if done.repeated else [(written.segment, written.length) for written in uploaded]
    return Result(COLUMNS, sorted(rows), _summary(done, skipped))


def _written_before(store: Store, batch: Batch) -> Result | None:
    """Return the result of a batch that was committed before, once the journal names it."""
    if batch.application is None:
        return None
    done = driver.repeated(store, batch.application, batch.version, acknowledge=batch.acknowledge)
    return None if done is None else Result(COLUMNS, [], _summary(done, 0))


def _summary(done: Written, skipped: int) -> dict[str, Any]:
    return {
        "segments": done.segments,
        "bytes": done.bytes,
        "skipped": skipped,
        "repeated": done.repeated,
        "published": done.published,
    }


def _require_columns(frame: DataFrame, key: str, value: str, order_by: Sequence[str]) -> None:
    for name in (key, value, *order_by):
        if name not in frame.columns:
            raise InvalidRequest(f"rows have no column {name}", remedy=f"they have {', '.join(frame.columns)}")
    if not isinstance(frame.schema[value].dataType, StringType | BinaryType):
        kind = frame.schema[value].dataType.simpleString()
        raise InvalidRequest(
            f"the column {value} is {kind}", remedy="convert it to a string, for example by to_json(struct(*))"
        )


def _require_keys(store: Store, into: str, keys: Sequence[str | None]) -> None:
    if len(keys) > _MOST_KEYS:
        raise InvalidRequest(f"more than {_MOST_KEYS} keys", remedy="ingest fewer keys at a time")
    if None in keys:
        raise InvalidRequest("a key is null", remedy="remove such rows, or give them a key: coalesce")
    require_new(store, into, [name for name in keys if name is not None])
