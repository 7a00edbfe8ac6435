"""One run of an export: its table is written aside, then its files are moved into the target. Resumable, once per run.

Crash order: rows in `<target>/_tierfs-<run>/table` -> sums beside them, so that the table is whole -> files moved, each
under a name of this run -> `<target>/_tierfs-<run>.json`, so that the run is done -> the rest removed. A repeat begins
anew before the sums, continues to move after them, and does nothing once the run is done. Readers of tables pass over
names that begin with an underscore, so they never see rows of a run that is not whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tierfs.base.words.errors import AlreadyExists, InvalidRequest, Unavailable
from tierfs.base.words.names import printable
from tierfs.pipeline.spark.jobs.tasks import explained, is_classic

# The run of an export that names none: the only one into its target.
UNNAMED = "export"

_ASIDE = "_tierfs-"
# What a killed job of Spark leaves, which is no part of a table.
_OTHERS = ("_temporary",)

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_run(run: str) -> None:
    """Raise InvalidRequest for a name that is no part of a file's name."""
    if not _RUN.fullmatch(run):
        raise InvalidRequest(
            f"invalid name of a run: {printable(run)!r}",
            remedy="use 1 to 100 letters, digits, dots, hyphens or underscores",
        )


class TableRun:
    """The files of one run in one target, a directory or URL that Spark writes to."""

    def __init__(self, spark: SparkSession, target: str, run: str) -> None:
        """Raises InvalidRequest for the run's name, and the errors of Spark for the target."""
        check_run(run)
        if not is_classic(spark):
            raise InvalidRequest(
                "an export needs the driver's Java to move files; a Spark Connect session does not have it",
                remedy="run tierfs pipeline export, or write a frame: spark.read.format('tierfs')…write.parquet(DIR)",
            )
        self._target, self._run = target, run
        with explained():
            self._jvm: Any = spark.sparkContext._jvm
            self._root = self._path(target)
            self._files = self._root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
            self._aside = self._path(f"{target}/{_ASIDE}{run}")
            self._sums = self._path(f"{target}/{_ASIDE}{run}/sums.json")
            self._done = self._path(f"{target}/{_ASIDE}{run}.json")

    @property
    def table(self) -> str:
        """The table while it is written. Its last component is not hidden, so that it can be read back there."""
        return f"{self._target}/{_ASIDE}{self._run}/table"

    def finished(self) -> Mapping[str, Any] | None:
        """Return the sums of a run that is done."""
        with explained():
            return self._read(self._done)

    def written(self) -> Mapping[str, Any] | None:
        """Return the sums of a run whose table is whole, and whose files are being moved."""
        with explained():
            return self._read(self._sums)

    def begin(self) -> None:
        """Remove what a run left that was killed before its table was whole."""
        with explained():
            self._files.delete(self._aside, True)

    def require_room(self) -> None:
        """Raise AlreadyExists for a target that holds anything but what killed jobs left aside."""
        with explained():
            held = [name for name in self._names() if not name.startswith((f"{_ASIDE}{self._run}", *_OTHERS))]
        if held or self.finished() is not None:
            raise AlreadyExists(
                f"{self._target} is not empty", remedy="add to it: --append; or replace it: --overwrite"
            )

    def complete(self, sums: Mapping[str, Any]) -> None:
        """Note that the table is whole."""
        with explained():
            self._write(self._sums, sums)

    def clear(self) -> None:
        """Remove everything in the target but this run's table, after it is whole."""
        with explained():
            for name in self._names():
                if name != f"{_ASIDE}{self._run}":
                    self._files.delete(self._path(f"{self._target}/{name}"), True)

    def publish(self, sums: Mapping[str, Any]) -> None:
        """Move the files into the target, then note that the run is done. Idempotent."""
        with explained():
            above = self._path(self.table).toUri().getPath().rstrip("/") + "/"
            for source in list(self._tables_files(self.table)):
                inner = source.toUri().getPath().removeprefix(above)
                directory, _, name = inner.rpartition("/")
                self._move(source, self._path("/".join(filter(None, (self._target, directory, f"{self._run}-{name}")))))
            self._write(self._done, sums)
            self._files.create(self._path(f"{self._target}/_SUCCESS"), True).close()  # other tools wait for it
            self._files.delete(self._aside, True)

    def size(self) -> tuple[int, int]:
        """Return the Parquet files of the target's table, and their bytes."""
        with explained():
            sizes = [self._files.getFileStatus(path).getLen() for path in self._tables_files(self._target)]
        return len(sizes), sum(sizes)

    def _move(self, source: Any, goal: Any) -> None:
        self._files.mkdirs(goal.getParent())
        # On an object store a move is a copy and a deletion: a kill in between leaves both, and the copy may be short.
        self._files.delete(goal, False)
        if not self._files.rename(source, goal):
            raise Unavailable(f"cannot move {source} to {goal}", remedy="run the export again: it continues")

    def _tables_files(self, directory: str) -> Iterator[Any]:
        listed = self._files.listFiles(self._path(directory), True)
        while listed.hasNext():
            path = listed.next().getPath()
            if path.getName().endswith(".parquet"):
                yield path

    def _names(self) -> list[str]:
        if not self._files.exists(self._root):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._root)]

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(name)

    def _read(self, path: Any) -> Mapping[str, Any] | None:
        """Return a document; None if there is none, or one that a kill cut off."""
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            with suppress(Py4JJavaError):
                stream.close()
        try:
            document: Mapping[str, Any] = json.loads(text)
        except ValueError:
            return None
        return document

    def _write(self, path: Any, document: Mapping[str, Any]) -> None:
        stream = self._files.create(path, True)
        stream.write(bytearray(json.dumps(document).encode()))
        stream.close()
