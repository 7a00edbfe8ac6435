"""A table of Parquet files in a directory, with a log of its rounds in `_tierfs`, which readers of tables pass over.

Crash order of a round: files in `_tierfs/staged-ID` -> `_tierfs/rounds/NUMBER.json` with the offset and the names of
the files, which is the commit -> files moved to where readers see them -> the staged directory removed. The next run
moves what a killed one had committed and not moved. A reader sees the files of a round one after the other, as a
directory has nothing that would show them together; Iceberg has.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tierfs.base.words import units
from tierfs.base.words.errors import AlreadyExists
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.jobs.tasks import explained
from tierfs.pipeline.spark.tables.followed_table import RoundFile, RoundFiles, RowRecipe, TableHead, other_run
from tierfs.pipeline.spark.tables.run_lock import only_run
from tierfs.pipeline.spark.tables.table_files import HadoopFiles

_LOG = "_tierfs"
_STAGED = "staged-"
_DIGITS = 20

# Rounds whose documents stay, for people: only the last one is needed.
_KEPT_ROUNDS = 100


class ParquetTable:
    """One directory or URL that Spark writes to."""

    keeps_fields = False

    def __init__(self, spark: SparkSession, target: str) -> None:
        """Raises the error of Spark for a target that it cannot reach."""
        self.name = target
        with explained():
            self._files = HadoopFiles(spark, target)
        self._root = self._files.root

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
            self._commit(head.mark + 1, {**document, "schema": schema.jsonValue(), "files": [], "staged": ""})

    def staging(self) -> str:
        """Return a directory in the log."""
        return f"{self._root}/{_LOG}/{_STAGED}{uuid.uuid4().hex}"

    def commit(self, head: TableHead, written: RoundFiles) -> None:
        """Write the document of the next round, unless another run did; then move the files."""
        assert head.recipe is not None
        staged = written.directory.rpartition("/")[2]
        document = _document(
            head.schema,
            head.recipe.as_text(),
            offset=written.end.as_json(),
            rows=head.rows + written.rows,
            staged=staged,
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

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the directory if it is on a local disk; then move the files of the last round, if a kill left some."""
        with only_run(f"{self._root}/{_LOG}", self.name):
            with explained():
                number = max(self._rounds())
                self._publish(self._files.read(self._round(number)))
            yield

    def _names(self, file: RoundFile, number: int, round_number: int, staged: str) -> list[str]:
        """Return where a file is in the staged directory, and where it goes."""
        inner = file.path.removeprefix(f"{staged}/")
        directory, _, _ = inner.rpartition("/")
        # Not `part-`, as files of rounds that are not committed: not all readers pass over `_tierfs`.
        name = f"rows-{round_number:06d}-{number:05d}-{staged.rpartition(_STAGED)[2][:8]}.parquet"
        return [inner, f"{directory}/{name}" if directory else name]

    def _publish(self, document: Mapping[str, Any]) -> None:
        """Move the files of a committed round. Idempotent: one that is there was moved before."""
        if not document["staged"]:
            return
        staged = f"{self._root}/{_LOG}/{document['staged']}"
        if not self._files.exists(staged):  # it is removed last
            return
        for inner, name in document["files"]:
            if self._files.exists(f"{staged}/{inner}"):
                # A move on an object store is a copy and a deletion: a kill may leave a part of the copy.
                self._files.remove(f"{self._root}/{name}")
                self._files.move(f"{staged}/{inner}", f"{self._root}/{name}")
        self._files.remove(staged)

    def _commit(self, number: int, document: Mapping[str, Any]) -> None:
        """Make the document of a round appear whole. Raises Conflict if that round is there."""
        path, aside = self._round(number), f"{self._root}/{_LOG}/{uuid.uuid4().hex}.json"
        self._files.write(aside, document)
        if self._files.exists(path):
            self._files.remove(aside)
            raise other_run(self.name)
        self._files.move(aside, path)

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
) -> dict[str, Any]:
    return {
        "v": 1,
        "offset": offset,
        "rows": rows,
        "recipe": recipe,
        "schema": schema.jsonValue(),
        "staged": staged,
        "files": files or [],
    }
