"""Files of tables, on any storage that Spark writes to: written by Spark's tasks, listed and moved by the driver."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.pipeline.spark.tables.followed_table import RoundFile
from tierfs.pipeline.spark.tables.partition_fields import PartitionField

_NULL = "__HIVE_DEFAULT_PARTITION__"
_SUFFIX = ".parquet"
# Of directories whose columns are in their files too.
_KEPT = "field-"

# Where runs on several machines may write, files of an unfinished round are not removed before (Iceberg's own default).
ABANDONED_MS = 3 * 24 * 3600 * 1000

# The capability of a file system to create a file only where none is, and the option for it (S3A of Hadoop 3.4.2).
_CONDITIONAL = "fs.option.create.conditional.overwrite"

# Their renames replace, or are copies: two runs could both commit the same round.
_OBJECT_STORES = ("s3a", "s3", "s3n", "oss", "cosn", "obs", "gs", "wasb", "wasbs")


class HadoopFiles:
    """The file system of one directory or URL, by the driver's Java."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        path = self._path(root)
        self._files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self.root = self._files.makeQualified(path).toString().rstrip("/")

    def below(self, directory: str) -> Iterator[tuple[str, int]]:
        """Yield all Parquet files below a directory, with their bytes; none if it does not exist."""
        if not self._files.exists(self._path(directory)):
            return
        listed = self._files.listFiles(self._path(directory), True)
        while listed.hasNext():
            status = listed.next()
            path = status.getPath().toString()
            if path.endswith(_SUFFIX):
                yield path, status.getLen()

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; none if it does not exist."""
        if not self._files.exists(self._path(directory)):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._path(directory))]

    def exists(self, path: str) -> bool:
        """Return whether something is there."""
        return bool(self._files.exists(self._path(path)))

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all in it. Idempotent."""
        self._files.delete(self._path(path), True)

    def age_ms(self, path: str) -> int:
        """Return the time since a file was written; of a directory, a file in it: object stores have no time for it."""
        status, listed = self._files.getFileStatus(self._path(path)), self._files.listFiles(self._path(path), True)
        written_ms: int = (listed.next() if listed.hasNext() else status).getModificationTime()
        return time.time_ns() // 1_000_000 - written_ms

    def require_commits(self) -> None:
        """Raise InvalidRequest for an object store that cannot create a document only where none is."""
        scheme = urlsplit(self.root).scheme
        if scheme in _OBJECT_STORES and not self._is_conditional():
            raise InvalidRequest(
                f"{self.root}: this file system cannot decide between two runs: it does not create files conditionally",
                remedy="use hadoop-aws 3.4.2 or newer and a server with If-None-Match, or a table of Iceberg",
            )

    def create(self, path: str, document: Mapping[str, Any], aside: str) -> bool:
        """Write a document whole if nothing is there; return whether that is so. `aside`: where it may be until then.

        No two callers are told so: an object store decides by a condition of the request, others by their rename, and a
        local disk by the lock that a run has.
        """
        if not self._is_conditional():
            self.write(aside, document)
            if self.exists(path):
                self.remove(aside)
                return False
            self.move(aside, path)
            return True
        stream = self._files.createFile(self._path(path)).must(_CONDITIONAL, "true").recursive().build()
        try:
            try:
                stream.write(bytearray(json.dumps(document).encode()))
            finally:
                stream.close()
        except Py4JJavaError:
            # A repeated request is refused too if the first one had effect, so what is there decides.
            if not self.exists(path):
                raise
            return self.read(path) == document
        return True

    def _is_conditional(self) -> bool:
        return bool(self._files.hasPathCapability(self._path(self.root), _CONDITIONAL))

    def move(self, source: str, goal: str) -> None:
        """Move a file, whose directory is made. Raises Unavailable; the file is then where it was."""
        self._files.mkdirs(self._path(goal).getParent())
        if not self._files.rename(self._path(source), self._path(goal)):
            raise Unavailable(f"cannot move {source} to {goal}", remedy="run the job again: it continues")

    @contextmanager
    def locked(self, path: Path, position: int) -> Iterator[None]:
        """Let Java have the lock of one byte of a local file for the block: it ends with Java, not with the driver.

        The byte must be free: else it raises Unavailable.
        """
        file = self._jvm.java.io.RandomAccessFile(str(path), "rw")
        try:
            if file.getChannel().tryLock(position, 1, False) is None:
                raise Unavailable(f"Java cannot lock {path}", remedy="run the job again")
            yield
        finally:
            with suppress(Py4JError, OSError):  # Java may be gone, and its locks with it
                file.close()

    def read(self, path: str) -> Mapping[str, Any]:
        """Return a document."""
        stream = self._files.open(self._path(path))
        try:
            document: Mapping[str, Any] = json.loads(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        return document

    def read_whole(self, path: str) -> Mapping[str, Any] | None:
        """Return a document; None if there is none, or one that a kill cut off."""
        try:
            return self.read(path) if self.exists(path) else None
        except ValueError:
            return None

    def touch(self, path: str) -> None:
        """Make an empty file."""
        self._files.create(self._path(path), True).close()

    def write(self, path: str, document: Mapping[str, Any]) -> None:
        """Write a document; a kill may leave a part of it."""
        stream = self._files.create(self._path(path), True)
        try:
            stream.write(bytearray(json.dumps(document).encode()))
        finally:
            stream.close()

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(name)


def write_files(
    frame: DataFrame, files: HadoopFiles, directory: str, fields: Sequence[PartitionField], *, keeps: bool
) -> list[RoundFile]:
    """Write rows to a new directory; return its files with the values of their partitions, in the order of the fields.

    `keeps`: all columns are in the files, and directories have names of their own. Else directories have the fields'
    names, and columns that are fields are in no file, as in other tables of directories.
    """
    names = [f"{_KEPT}{number}" if keeps else each.name for number, each in enumerate(fields)]
    values = {name: each.value() for name, each in zip(names, fields, strict=True) if name not in frame.columns}
    writer = frame.withColumns(values).write.option("compression", "zstd")
    writer.partitionBy(*names).parquet(directory)
    written = files.below(directory)
    return [
        RoundFile(path, size_bytes, _values(path.removeprefix(directory), len(names))) for path, size_bytes in written
    ]


def _values(path: str, count: int) -> tuple[str | None, ...]:
    """Return the values in the directories of a path; Spark escapes them as Hive does."""
    parts = [part for part in path.split("/") if part]
    values = [unquote(part.partition("=")[2]) for part in parts[:count]]
    return tuple(None if value == _NULL else value for value in values)
