"""The interface of a table of any format to the rounds of a job, and the records between them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from pyspark.sql.types import StructType

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import Conflict, InvalidRequest
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.tables.partition_fields import PartitionField, parse_fields

VERSION = 2
_NEW_TABLE = "use the options of its first run, or another table"


@dataclass(frozen=True, slots=True)
class RowRecipe:
    """The way from segments to the rows of a table. It never changes, or old and new rows would differ."""

    read: str
    """Name of the stream: kind of records, and paths."""
    rows: str
    """`lines`, `json`, `messages` or `entries`; `bad` for lines that are no rows of the other table."""
    directories: str = ""
    """Columns of directories, in Spark's terms."""
    columns: tuple[tuple[str, str], ...] = ()
    """Further columns and their SQL expressions."""
    partition_by: tuple[PartitionField, ...] = ()
    births: str = ""
    """Id of the store if rows have the births of their segments, so that dropped ones are found; else nothing."""

    def as_text(self) -> str:
        """Return the recipe as tables keep it."""
        fields = {"read": self.read, "rows": self.rows, "directories": self.directories, "columns": self.columns}
        fields |= {"partition_by": [each.text for each in self.partition_by]}
        # A tierfs that does not know births would add rows without them, which never go.
        return json.dumps({**fields, "births": self.births, "v": VERSION} if self.births else {**fields, "v": 1})

    @classmethod
    def of(cls, text: str, table: str) -> RowRecipe:
        """Return the recipe of a table. Raises InvalidRequest for one that this tierfs cannot read."""
        saved: dict[str, Any] = json.loads(text)
        if saved["v"] > VERSION:
            raise InvalidRequest(
                f"{table} was written by a newer tierfs: its recipe has version {saved['v']}", remedy="upgrade tierfs"
            )
        columns = tuple((name, expression) for name, expression in saved["columns"])
        fields = parse_fields(saved["partition_by"])
        return cls(saved["read"], saved["rows"], saved["directories"], columns, fields, saved.get("births", ""))

    def require_same(self, wanted: RowRecipe, table: str) -> None:
        """Raise InvalidRequest if a run wants other rows. Columns of directories may appear later, and are ignored."""
        for name, old, new in (
            ("reads", self.read, wanted.read),
            ("has rows of type", self.rows, wanted.rows),
            ("has further columns", _shown(self.columns), _shown(wanted.columns)),
            ("is partitioned by", _texts(self.partition_by), _texts(wanted.partition_by)),
        ):
            if old != new:
                raise InvalidRequest(f"{table} {name} {old or 'nothing'}, not {new or 'nothing'}", remedy=_NEW_TABLE)

    def at_directories(self, ddl: str) -> RowRecipe:
        """Return the same with other columns of directories."""
        return replace(self, directories=ddl)


def _shown(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={expression}" for name, expression in columns)


def _texts(fields: Sequence[PartitionField]) -> str:
    return ", ".join(each.text for each in fields)


@dataclass(frozen=True, slots=True)
class TableHead:
    """A table as it is at one moment."""

    exists: bool = False
    offset: StreamOffset | None = None
    """The end of its rows; None before the first round."""
    recipe: RowRecipe | None = None
    schema: StructType = field(default_factory=StructType)
    mark: int = 0
    """The commit that the next one must follow."""
    rows: int = 0


@dataclass(frozen=True, slots=True)
class RoundFile:
    """One Parquet file of a round."""

    path: str
    size_bytes: int
    values: tuple[str | None, ...] = ()
    """Of the partition's fields, as directories spell them."""


@dataclass(frozen=True, slots=True)
class RoundFiles:
    """The files of a round, and the offset after it."""

    files: Sequence[RoundFile]
    end: StreamOffset
    rows: int
    directory: str


@dataclass(frozen=True, slots=True)
class TableFile:
    """One Parquet file that readers of a table see."""

    path: str
    size_bytes: int
    partition: str = ""
    """The same for files of one partition."""
    is_exact: bool = True
    """Whether readers see all of its rows: another program may have deleted some by a file beside it."""
    handle: Any = None
    """Of the format's own library."""


class FollowedTable(Protocol):
    """A table of one format. All methods raise Unavailable where its storage does not answer."""

    name: str
    keeps_fields: bool
    """Whether columns that it is partitioned by are in its files too."""
    widens: bool
    """Whether the type of a column can become wider."""

    @property
    def location(self) -> str:
        """URL of its directory; empty before it exists."""
        ...

    def head(self) -> TableHead:
        """Return the table as it is now."""
        ...

    def create(self, schema: StructType, recipe: RowRecipe) -> None:
        """Make the table, or let an existing one follow from now on. Idempotent."""
        ...

    def widen(self, schema: StructType) -> None:
        """Add the columns that are new, and widen types if it does so. Idempotent."""
        ...

    def staging(self) -> str:
        """Return a new directory for the files of a round; no reader of the table looks there."""
        ...

    def commit(self, head: TableHead, written: RoundFiles) -> None:
        """Add the files and set the offset, both or nothing.

        Raises Conflict if the table is no longer at the offset of `head`: then nothing was added.
        """
        ...

    def data_files(self) -> list[TableFile]:
        """Return the files of the table as it is now. Raises InvalidRequest if names of columns had other meanings."""
        ...

    def replace(self, head: TableHead, old: Sequence[TableFile], new: RoundFiles, dropped: int) -> None:
        """Put files in the place of others, both or nothing; the offset stays.

        `dropped`: the rows that are not in the new ones. Raises Conflict as `commit`, and if an old file is gone.
        """
        ...

    def expire(self, before_ms: int) -> int:
        """Forget versions of the table from before a time, and their files; the offset stays.

        Return the number of versions, or of files in a format that has no end of versions.
        """
        ...

    def renew(self, head: TableHead) -> None:
        """Write the offset again if the table's log forgets old ones and this one is old; most formats forget none.

        Raises Conflict as `commit`.
        """
        ...

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs on this machine from the table, finish what a killed run had committed, and remove the rest.

        Raises Conflict if another run is there. Called when the table exists.
        """
        ...


def other_run(name: str) -> Conflict:
    """Return the error of a run whose rows another one has added meanwhile."""
    return Conflict(
        f"another run added rows to {name} meanwhile; this one added nothing", remedy="run one at a time for a table"
    )
