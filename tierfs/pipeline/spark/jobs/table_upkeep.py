"""Upkeep of a table between rounds: rows of dropped bytes, small files, old versions.

Each step is one commit of files in the place of others, at the offset that the table has. A kill before it leaves files
that nobody sees, which the next run removes; a kill after it leaves nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.jobs.live_segments import LiveSegments
from tierfs.pipeline.spark.jobs.tasks import explained
from tierfs.pipeline.spark.tables.followed_table import FollowedTable, RoundFiles, TableFile, TableHead, other_run
from tierfs.pipeline.spark.tables.rewriting import bins, path_key, read_files, rewrite_files, steps

OnStep = Callable[[str], None]

_FILE, _ROWS, _GONE = "_tierfs_file", "_tierfs_rows", "_tierfs_gone"


@dataclass(frozen=True, slots=True)
class ReplacedFiles:
    """The files that were replaced, those that replaced them, and the rows that are in neither."""

    old: int = 0
    new: int = 0
    rows: int = 0


class TableUpkeep:
    """Upkeep of one table, which this run holds."""

    def __init__(self, spark: SparkSession, table: FollowedTable, step: OnStep) -> None:
        self._spark, self._table, self._step = spark, table, step

    def drop(self, live: LiveSegments, birth: str, position: str, at: StreamOffset | None) -> int:
        """Delete the rows whose first byte, or entry, the store does not have any more; return their number.

        `at`: the table's offset before `live` was read. Raises Conflict if it is another one now: another run has added
        rows, perhaps of segments that are younger than `live`. Raises InvalidRequest if another program has deleted
        further rows of the same file.
        """
        files = self._table.data_files()
        counted = self._gone(files, live, birth, position) if files else {}
        whole = [each for each in files if (counts := counted.get(path_key(each.path))) and counts[0] == counts[1]]
        parts = [each for each in files if (counts := counted.get(path_key(each.path))) and counts[0] > counts[1]]
        if any(not each.is_exact for each in parts):
            raise InvalidRequest(
                f"another program has deleted or partitioned rows of {self._table.name} of which others are to go",
                remedy="rewrite its files first: Iceberg's rewrite_data_files with delete-file-threshold=1",
            )

        def rows(some: Sequence[TableFile]) -> int:
            return sum(counted[path_key(each.path)][1] for each in some)

        def kept(frame: DataFrame) -> DataFrame:
            columns = frame.columns
            marked, gone = live.marked(self._spark, frame, f"`{birth}`", f"`{position}`")
            return marked.where(~gone).select(*(F.col(f"`{name}`") for name in columns))

        if whole:
            self._step("drop files")
            self._remove(whole, rows(whole), at)
        for some in steps([[each] for each in parts]):
            together = [each for files in some for each in files]
            self._rewrite(some, kept, rows(together), at)
        return rows(whole) + rows(parts)

    def compact(self, least: int) -> ReplacedFiles:
        """Make one file of at least so many small ones of a partition, again and again."""
        old = new = 0
        for some in steps(bins(self._table.data_files(), least)):
            new += self._rewrite(some, lambda frame: frame, 0)
            old += sum(len(each) for each in some)
        return ReplacedFiles(old, new)

    def expire(self, older_s: float) -> int:
        """Forget versions that are older; return their number."""
        self._step("expire")
        return self._table.expire(int((time.time() - older_s) * 1000))

    def _gone(
        self, files: Sequence[TableFile], live: LiveSegments, birth: str, position: str
    ) -> dict[str, tuple[int, int]]:
        """Return the rows of files that have some to delete, and how many these are. Reads two columns."""
        places = StructType([each for each in self._table.head().schema.fields if each.name in (birth, position)])
        with explained():
            rows = read_files(self._spark, self._table, files, places, _FILE)
            marked, gone = live.marked(self._spark, rows, f"`{birth}`", f"`{position}`")
            sums = marked.groupBy(_FILE).agg(F.count(F.lit(1)).alias(_ROWS), F.sum(gone.cast("long")).alias(_GONE))
            counted = sums.where(F.col(_GONE) > 0).collect()
        return {path_key(row[_FILE]): (row[_ROWS], row[_GONE]) for row in counted}

    def _rewrite(
        self,
        some: Sequence[Sequence[TableFile]],
        keep: Callable[[DataFrame], DataFrame],
        dropped: int,
        at: StreamOffset | None = None,
    ) -> int:
        """Replace files by one for each group; return how many there are now. `at`: see `drop`."""
        head = self._head_at(at)
        assert head.recipe is not None
        self._step("rewrite")
        with explained():
            directory, written = rewrite_files(
                self._spark, self._table, some, head.schema, head.recipe.partition_by, keep
            )
        assert head.offset is not None
        self._step("replace")
        old = [each for files in some for each in files]
        self._table.replace(head, old, RoundFiles(written, head.offset, 0, directory), dropped)
        return len(written)

    def _remove(self, old: Sequence[TableFile], dropped: int, at: StreamOffset | None) -> None:
        head = self._head_at(at)
        assert head.offset is not None
        self._table.replace(head, old, RoundFiles([], head.offset, 0, ""), dropped)

    def _head_at(self, at: StreamOffset | None) -> TableHead:
        """Return the state of the table. Raises Conflict if it has another offset than the one given."""
        head = self._table.head()
        if at is not None and head.offset != at:
            raise other_run(self._table.name)
        return head
