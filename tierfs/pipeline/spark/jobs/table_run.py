"""One run of an export: its table is written aside, then its files are moved into the target. Resumable, once per run.

Crash order: rows in `<target>/_tierfs-<run>/table` -> sums beside them, so that the table is whole -> files moved, each
under a name of this run -> `<target>/_tierfs-<run>.json`, so that the run is done -> the rest removed. A repeat begins
anew before the sums, continues to move after them, and does nothing once the run is done. Readers of tables pass over
names that begin with an underscore, so they never see rows of a run that is not whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from tierfs.base.words.errors import AlreadyExists, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.pipeline.spark.jobs.tasks import explained, is_classic
from tierfs.pipeline.spark.tables.table_files import HadoopFiles

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
            self._files = HadoopFiles(spark, target)
        self._root = self._files.root
        self._aside = f"{self._root}/{_ASIDE}{run}"
        self._sums, self._done = f"{self._aside}/sums.json", f"{self._aside}.json"

    @property
    def table(self) -> str:
        """The table while it is written. Its last component is not hidden, so that it can be read back there."""
        return f"{self._aside}/table"

    def finished(self) -> Mapping[str, Any] | None:
        """Return the sums of a run that is done."""
        with explained():
            return self._files.read_whole(self._done)

    def written(self) -> Mapping[str, Any] | None:
        """Return the sums of a run whose table is whole, and whose files are being moved."""
        with explained():
            return self._files.read_whole(self._sums)

    def begin(self) -> None:
        """Remove what a run left that was killed before its table was whole."""
        with explained():
            self._files.remove(self._aside)

    def require_room(self) -> None:
        """Raise AlreadyExists for a target that holds anything but what killed jobs left aside."""
        with explained():
            held = [
                name
                for name in self._files.names(self._root)
                if not name.startswith((f"{_ASIDE}{self._run}", *_OTHERS))
            ]
        if held or self.finished() is not None:
            raise AlreadyExists(
                f"{self._target} is not empty", remedy="add to it: --append; or replace it: --overwrite"
            )

    def complete(self, sums: Mapping[str, Any]) -> None:
        """Note that the table is whole."""
        with explained():
            self._files.write(self._sums, sums)

    def clear(self) -> None:
        """Remove everything in the target but this run's table, after it is whole."""
        with explained():
            for name in self._files.names(self._root):
                if name != f"{_ASIDE}{self._run}":
                    self._files.remove(f"{self._root}/{name}")

    def publish(self, sums: Mapping[str, Any]) -> None:
        """Move the files into the target, then note that the run is done. Idempotent."""
        with explained():
            for source, _ in list(self._files.below(self.table)):
                directory, _, name = source.removeprefix(f"{self.table}/").rpartition("/")
                goal = "/".join(filter(None, (self._root, directory, f"{self._run}-{name}")))
                # On an object store a move is a copy and a deletion: a kill in between leaves both.
                self._files.remove(goal)
                self._files.move(source, goal)
            self._files.write(self._done, sums)
            self._files.touch(f"{self._root}/_SUCCESS")  # other tools wait for it
            self._files.remove(self._aside)

    def size(self) -> tuple[int, int]:
        """Return the Parquet files of the target's table, and their bytes."""
        with explained():
            sizes = [size_bytes for _, size_bytes in self._files.below(self._root)]
        return len(sizes), sum(sizes)
