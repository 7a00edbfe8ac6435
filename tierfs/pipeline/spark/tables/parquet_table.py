"""A table of Parquet files in a directory, with a log of its rounds in `_tierfs`, which readers of tables pass over.

Crash order of a round: files in `_tierfs/staged-ID` -> `_tierfs/rounds/NUMBER.json` with the offset and the names of
the files, which is the commit -> files moved to where readers see them -> the staged directory removed. The next run
moves what a killed one had committed and not moved. A reader sees the files of a round one after the other, as a
directory has nothing that would show them together; Iceberg has.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tierfs.base.words import units
from tierfs.base.words.errors import AlreadyExists
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.jobs.tasks import explained
from tierfs.pipeline.spark.tables.followed_table import (
    RoundFile,
    RoundFiles,
    RowRecipe,
    TableFile,
    TableHead,
    other_run,
)
from tierfs.pipeline.spark.tables.run_lock import local_path, only_run
from tierfs.pipeline.spark.tables.table_files import ABANDONED_MS, HadoopFiles

_LOG = "_tierfs"
_STAGED = "staged-"
_DIGITS = 20

# Rounds whose documents stay, for people: only the last one is needed.
_KEPT_ROUNDS = 100


class ParquetTable:
    """One directory or URL that Spark writes to."""

    keeps_fields = False
    widens = True

    def __init__(self, spark: SparkSession, target: str) -> None:
        """Raises the error of Spark for a target that it cannot reach."""
        self.name = target
        with explained():
            self._files = HadoopFiles(spark, target)
            self._files.require_commits()
        self._root = self.location = self._files.root

    def head(self) -> TableHead:
        """Return the state after the last round."""
        with explained():
            number = max(self._rounds(), default=-1)
            if number < 0:
                return TableHead()
            document = self._files.read(self._round(number))
            return TableHead(
                exists=True,
                offset=None if document["offset"] is None else StreamOffset.of(document["offset"]),
                recipe=RowRecipe.of(document["recipe"], self.name),
                schema=StructType.fromJson(document["schema"]),
                mark=number,
                rows=document["rows"],
            )

    def create(self, schema: StructType, recipe: RowRecipe) -> None:
        """Begin a log in a directory without files. Raises AlreadyExists for one that has some."""
        with explained():
            if any(not name.startswith("_") for name in self._files.names(self._root)):
                raise AlreadyExists(
                    f"{self.name} is not empty, and no table that tierfs writes", remedy="use another directory"
                )
            self._commit(0, _document(schema, recipe.as_text(), offset=None, rows=0))

    def widen(self, schema: StructType) -> None:
        """Note the new columns; files of before do not have them."""
        head = self.head()
        with explained():
            document = dict(self._files.read(self._round(head.mark)))
            none = {"files": [], "removed": [], "staged": ""}
            self._commit(head.mark + 1, {**document, **none, "schema": schema.jsonValue()})

    def staging(self) -> str:
        """Return a directory in the log."""
        return f"{self._root}/{_LOG}/{_STAGED}{uuid.uuid4().hex}"

    def commit(self, head: TableHead, written: RoundFiles) -> None:
        """Write the document of the next round, unless another run did; then move the files."""
        self._add_round(head, written, head.rows + written.rows)

    def replace(self, head: TableHead, old: Sequence[TableFile], new: RoundFiles, dropped: int) -> None:
        """Write a round at the same offset: its files are moved before the old ones are removed."""
        removed = [each.path.removeprefix(f"{self._root}/") for each in old]
        self._add_round(head, new, head.rows - dropped, removed)

    def data_files(self) -> list[TableFile]:
        """Return the files outside of the log; the directory is the partition."""
        with explained():
            return [
                TableFile(path, size_bytes, path.rpartition("/")[0])
                for path, size_bytes in self._files.below(self._root)
                if not path.startswith(f"{self._root}/{_LOG}/")
            ]

    def expire(self, before_ms: int) -> int:
        """Return 0: a directory has no versions."""
        return 0

    def _add_round(self, head: TableHead, written: RoundFiles, rows: int, removed: Sequence[str] = ()) -> None:
        assert head.recipe is not None
        staged = written.directory.rpartition("/")[2]
        document = _document(
            head.schema,
            head.recipe.as_text(),
            offset=written.end.as_json(),
            rows=rows,
            staged=staged,
            removed=list(removed),
            files=[
                self._names(file, number, head.mark + 1, written.directory) for number, file in enumerate(written.files)
            ],
        )
        with explained():
            self._commit(head.mark + 1, document)
            self._publish(document)
            for number in self._rounds():
                if number <= head.mark - _KEPT_ROUNDS:
                    self._files.remove(self._round(number))

    def renew(self, head: TableHead) -> None:
        """Do nothing: the offset stays until someone removes it."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the directory if it is on a local disk; then end the last round, and remove what others have staged."""
        with only_run(f"{self._root}/{_LOG}", self.name, self._files):
            with explained():
                number = max(self._rounds())
                self._publish(self._files.read(self._round(number)))
                self._sweep(alone=local_path(self._root) is not None)
            yield

    def _sweep(self, *, alone: bool) -> None:
        """Remove what killed rounds have left. `alone`: no run can be writing it now."""
        for name in self._files.names(f"{self._root}/{_LOG}"):
            path = f"{self._root}/{_LOG}/{name}"
            is_left = name.startswith(_STAGED) or name.endswith(".json")
            if is_left and (alone or self._files.age_ms(path) > ABANDONED_MS):
                self._files.remove(path)

    def _names(self, file: RoundFile, number: int, round_number: int, staged: str) -> list[str]:
        """Return where a file is in the staged directory, and where it goes."""
        inner = file.path.removeprefix(f"{staged}/")
        directory, _, _ = inner.rpartition("/")
        # Not `part-`, as files of rounds that are not committed: not all readers pass over `_tierfs`.
        name = f"rows-{round_number:06d}-{number:05d}-{staged.rpartition(_STAGED)[2][:8]}.parquet"
        return [inner, f"{directory}/{name}" if directory else name]

    def _publish(self, document: Mapping[str, Any]) -> None:
        """Move the files of a committed round, and remove those that they replace. Idempotent, by any number of runs.

        A move on an object store is a copy, which appears whole, and a deletion: a file that is there was moved.
        """
        staged = f"{self._root}/{_LOG}/{document['staged']}"
        is_staged = bool(document["staged"]) and self._files.exists(staged)  # it is removed last
        for inner, name in document["files"] if is_staged else ():
            if not self._files.exists(f"{self._root}/{name}"):
                self._files.move(f"{staged}/{inner}", f"{self._root}/{name}")
        for name in document.get("removed", ()):
            self._files.remove(f"{self._root}/{name}")
        if is_staged:
            self._files.remove(staged)

    def _commit(self, number: int, document: Mapping[str, Any]) -> None:
        """Make the document of a round appear whole. Raises Conflict if that round is there."""
        name = uuid.uuid4().hex
        written = {**document, "id": name}
        if not self._files.create(self._round(number), written, f"{self._root}/{_LOG}/{name}.json"):
            raise other_run(self.name)

    def _rounds(self) -> list[int]:
        numbers = (
            units.decimal(name.removesuffix(".json")) for name in self._files.names(f"{self._root}/{_LOG}/rounds")
        )
        return [number for number in numbers if number is not None]

    def _round(self, number: int) -> str:
        return f"{self._root}/{_LOG}/rounds/{number:0{_DIGITS}d}.json"


def _document(
    schema: StructType,
    recipe: str,
    *,
    offset: dict[str, Any] | None,
    rows: int,
    staged: str = "",
    files: list[list[str]] | None = None,
    removed: list[str] | None = None,
) -> dict[str, Any]:
    return {
        "v": 1,
        "offset": offset,
        "rows": rows,
        "recipe": recipe,
        "schema": schema.jsonValue(),
        "staged": staged,
        "files": files or [],
        "removed": removed or [],
    }
