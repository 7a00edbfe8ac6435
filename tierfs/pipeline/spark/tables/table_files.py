"""Files of tables, on any storage that Spark writes to: written by Spark's tasks, listed and moved by the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from tierfs.base.words.errors import Unavailable
from tierfs.pipeline.spark.tables.followed_table import RoundFile
from tierfs.pipeline.spark.tables.partition_fields import PartitionField

_NULL = "__HIVE_DEFAULT_PARTITION__"
_SUFFIX = ".parquet"
# Of directories whose columns are in their files too.
_KEPT = "field-"


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

    def move(self, source: str, goal: str) -> None:
        """Move a file, whose directory is made. Raises Unavailable; the file is then where it was."""
        self._files.mkdirs(self._path(goal).getParent())
        if not self._files.rename(self._path(source), self._path(goal)):
            raise Unavailable(f"cannot move {source} to {goal}", remedy="run the job again: it continues")

    def read(self, path: str) -> Mapping[str, Any]:
        """Return a document."""
        stream = self._files.open(self._path(path))
        try:
            document: Mapping[str, Any] = json.loads(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        return document

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
