"""The job `table`: a table follows segments, round by round; see spark/tables.

Crash order of a round: rows written where no reader looks -> committed together with the offset -> the bad lines of the
same bytes, in their own table with its own offset. A kill between any two of them leaves each table at an offset, and
the next run reads on from there: the bad lines are made again of the same bytes.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from time import monotonic
from typing import Self

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import OnProgress, unseen
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.reader.stream_shares import NO_LIMIT, Limits
from tierfs.pipeline.spark import register
from tierfs.pipeline.spark.columns import full_schema
from tierfs.pipeline.spark.jobs import json_rows
from tierfs.pipeline.spark.jobs.live_segments import LiveSegments, live_segments
from tierfs.pipeline.spark.jobs.table_upkeep import OnStep, TableUpkeep
from tierfs.pipeline.spark.jobs.table_words import told_of_a_table
from tierfs.pipeline.spark.jobs.tasks import explained, is_classic, stages_watched
from tierfs.pipeline.spark.opened_stream import OpenedStream
from tierfs.pipeline.spark.options import STREAM_OPTIONS, ReadOptions
from tierfs.pipeline.spark.planning import schema_of
from tierfs.pipeline.spark.row_types import ROW_COLUMNS, RowType
from tierfs.pipeline.spark.stream_options import StreamOptions
from tierfs.pipeline.spark.tables.followed_table import FollowedTable, RoundFiles, RowRecipe, TableHead
from tierfs.pipeline.spark.tables.partition_fields import PartitionField
from tierfs.pipeline.spark.tables.table_files import HadoopFiles, write_files

# A round of fewer bytes is one task, and so one file (a guess).
_SMALL_ROUND_BYTES = 16 * MIB

# Times are microseconds, which all readers of Parquet know, not the INT96 of old ones.
_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.session.timeZone": "UTC"}

# Pause between two searches for rows of dropped bytes in a run that goes on: each reads two columns of the table.
SEARCH_S = 600.0


class TableRows(StrEnum):
    """The kind of a table's rows."""

    LINES = "lines"
    JSON = "json"
    MESSAGES = "messages"
    ENTRIES = "entries"
    ROCKETMQ = "rocketmq"


_READ = {
    TableRows.LINES: RowType.LINES,
    TableRows.JSON: RowType.LINES,
    TableRows.MESSAGES: RowType.MESSAGES,
    TableRows.ENTRIES: RowType.ENTRIES,
    TableRows.ROCKETMQ: RowType.ROCKETMQ,
}


@dataclass(frozen=True, slots=True)
class TableWanted:
    """The rows that a table is to have."""

    paths: tuple[str, ...]
    rows: TableRows = TableRows.LINES
    schema: str | None = None
    """Columns of JSON, in Spark's terms; None: as Spark infers them of the first round."""
    evolves: bool = False
    """Whether fields of JSON that are new become columns."""
    columns: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[PartitionField, ...] = ()
    recursive: bool = False
    round_bytes: int | None = None
    skips_lost: bool = False
    drops: bool = False
    """Whether rows go with their bytes."""


@dataclass(frozen=True, slots=True)
class RoundSums:
    """The sums of one round."""

    rows: int
    bad: int
    bytes: int
    files: int
    dropped: int = 0


class TableJob:
    """Runs the rounds of one table. A context manager: the tables are its own meanwhile."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        what: TableWanted,
        table: FollowedTable,
        bad: FollowedTable | None,
        *,
        show: OnProgress = unseen,
        step: OnStep = lambda _: None,
        search_s: float = SEARCH_S,
    ) -> None:
        """`bad`: the table of bad lines, with JSON. `step` hears of each step of a round, before it is made.

        `search_s`: the least time between two searches for rows of dropped bytes.

        Raises NotFound for a path, and InvalidRequest for options, or a table of other rows.
        """
        if not is_classic(spark):
            raise InvalidRequest("tables need the driver's Java", remedy="run tierfs pipeline table")
        self._spark, self._store, self._what, self._show, self._step = spark, store, what, show, step
        self._table, self._bad = table, bad
        head = table.head()
        self._births = _births(head, table.name, what, store.metadata.store_id)
        self._live: LiveSegments | None = None
        self._search_s = search_s
        self._searched = (-1, 0.0)
        """The transaction in which rows of dropped bytes were searched last, and the time."""
        self._options = self._read_options(str(store.path))
        with explained():
            for name, value in _SETTINGS.items():
                spark.conf.set(name, value)
        columns = ROW_COLUMNS[_READ[what.rows]]
        if head.recipe is None:
            known = schema_of(ReadOptions.of(self._options, STREAM_OPTIONS))
            self._directories = StructType([each for each in known.fields if each.name not in columns])
        else:
            self._directories = json_rows.columns_of(head.recipe.directories)
        self._source = full_schema(_READ[what.rows], {each.name: each.dataType for each in self._directories.fields})
        options = StreamOptions.of(self._options)
        if self._births:
            self._source.add(json_rows.BIRTH, LongType())
        self._opened = OpenedStream(options, store, self._source)
        self._recipe = RowRecipe(
            options.stream_read().name,
            str(what.rows),
            ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in self._directories.fields),
            what.columns,
            what.partition_by,
            self._births,
        )
        if head.recipe is not None:
            head.recipe.require_same(self._recipe, table.name)
        self._held = ExitStack()
        self._is_held = False

    def __enter__(self) -> Self:
        register(self._spark)
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def freeze(self) -> None:
        """Read no further than the present end of the store."""
        self._opened.refresh()
        self._opened.stream.freeze()

    def round(self) -> RoundSums | None:
        """Add the next rows; None if there are none.

        Raises Conflict if another run adds rows, and what reading raises.
        """
        with told_of_a_table():
            return self._round()

    def _round(self) -> RoundSums | None:
        self._opened.refresh()
        head = self._table.head()
        if head.recipe is not None:
            self._hold()
            head = self._table.head()
        start = head.offset or self._opened.stream.earliest()
        self._finish_bad(head)
        if dropped := self._drop(head):
            return RoundSums(0, 0, 0, 0, dropped)
        limits = NO_LIMIT if self._what.round_bytes is None else Limits(self._what.round_bytes)
        end = self._opened.stream.next_offset(start, limits)
        if end == start:
            self._renew(head)
            return None
        lines, is_empty = self._between(start, end), end.bytes == start.bytes
        schema = self._schema(head, lines, is_empty=is_empty)
        if schema is None:
            return None
        seen = Observation()
        made = self._rows(lines, schema, seen)
        head = self._ready(head, made.schema)
        written, bad = RoundFiles([], end, 0, ""), 0
        if not is_empty:
            self._step("write")
            written = self._write(_fitting(made, head.schema, self._table.name), self._table, end)
            rows, bad = int(seen.get["rows"]), int(seen.get["bad"] or 0)
            written = replace(written, rows=rows - bad)
        self._step("commit")
        self._table.commit(head, written)
        if self._bad is not None:
            self._add_bad(self._bad, start, end, schema, is_none=not bad)
        self._step("end")
        return RoundSums(written.rows, bad, end.bytes - start.bytes, len(written.files))

    def _renew(self, head: TableHead) -> None:
        """Keep the offsets of a source that is at rest."""
        self._table.renew(head)
        if self._bad is not None:
            self._bad.renew(self._bad.head())

    def _drop(self, head: TableHead) -> int:
        """Delete the rows of dropped bytes, if that is wanted and any were dropped since the last search."""
        transaction, (searched, at_s) = self._store.metadata.last_transaction_id(), self._searched
        if not self._what.drops or head.offset is None or transaction == searched:
            return 0
        if searched >= 0 and monotonic() - at_s < self._search_s:
            return 0
        bad_at = None if self._bad is None else self._bad.head().offset
        with self._store.metadata.read() as txn:
            live, before = live_segments(txn), self._live
            self._searched = txn.id, monotonic()
        self._live = live
        if before is not None and not live.has_lost(before):
            return 0
        hidden = "_" if self._what.rows is TableRows.JSON else ""
        of_entries = self._what.rows in (TableRows.MESSAGES, TableRows.ENTRIES)
        position = "entry_id" if of_entries else f"{hidden}offset"
        dropped = TableUpkeep(self._spark, self._table, self._step).drop(
            live, hidden + json_rows.BIRTH, position, head.offset
        )
        if self._bad is not None:
            dropped += TableUpkeep(self._spark, self._bad, self._step).drop(live, json_rows.BIRTH, "offset", bad_at)
        return dropped

    def compact(self, least: int) -> tuple[int, int]:
        """Make one file of at least so many small ones; return how many there were, and are now."""
        done = [TableUpkeep(self._spark, each, self._step).compact(least) for each in self._all_held()]
        return sum(each.old for each in done), sum(each.new for each in done)

    def expire(self, older_s: float) -> int:
        """Forget versions of the tables that are older; return their number."""
        return sum(TableUpkeep(self._spark, each, self._step).expire(older_s) for each in self._all_held())

    def _all_held(self) -> list[FollowedTable]:
        """Return the tables that have rows, which are held."""
        if self._table.head().offset is None:
            return []
        self._hold()
        return [each for each in (self._table, self._bad) if each is not None and each.head().offset is not None]

    def _ready(self, head: TableHead, schema: StructType) -> TableHead:
        """Make or widen the table for rows, if that is needed; return it as it is then."""
        plain = StructType([StructField(each.name, each.dataType) for each in schema.fields])
        if head.recipe is None:
            for each in self._recipe.partition_by:
                each.require_in(plain)
            if self._bad is not None and self._bad.head().recipe is None:
                self._step("create bad")
                births = [StructField(json_rows.BIRTH, LongType())] if self._births else []
                schema_of_bad = StructType([*json_rows.BAD_SCHEMA.fields, *births])
                self._bad.create(schema_of_bad, RowRecipe(self._recipe.read, "bad", births=self._births))
            self._step("create")
            self._table.create(plain, self._recipe)
            self._hold()
            return self._table.head()
        if self._what.evolves and (wider := self._widened(head.schema, plain)) != head.schema:
            self._step("widen")
            self._table.widen(wider)
            return self._table.head()
        return head

    def _finish_bad(self, head: TableHead) -> None:
        """Add the bad lines of a round that was killed before that: by the same schema, as nothing widened it."""
        if self._bad is None or head.recipe is None or head.offset is None:
            return
        schema = self._schema(head, None, is_empty=True)
        if schema is not None:
            self._add_bad(self._bad, head.offset, head.offset, schema, is_none=False)

    def _hold(self) -> None:
        if not self._is_held:
            self._is_held = True
            for table in (self._table, self._bad):
                if table is not None and table.head().recipe is not None:
                    self._held.enter_context(table.held())

    def _read_options(self, store: str) -> dict[str, str]:
        what = self._what
        options = {
            "store": store,
            "type": str(_READ[what.rows]),
            "paths": json.dumps([path or "/" for path in what.paths]),
        }
        options["recursiveFileLookup"] = str(what.recursive).lower()
        options["failOnDataLoss"] = str(not what.skips_lost).lower()
        return options

    def _between(self, start: StreamOffset, end: StreamOffset) -> DataFrame:
        """Return the rows of the source between two offsets."""
        given: dict[str, str] = {
            **self._options,
            "startingOffsets": json.dumps(start.as_json()),
            "endingOffsets": json.dumps(end.as_json()),
        }
        if end.bytes - start.bytes < _SMALL_ROUND_BYTES:
            given["minPartitions"] = "1"
        paths = json.loads(given.pop("paths"))
        with explained():
            return self._spark.read.format("tierfs").options(**given).schema(self._source).load(paths)

    def _schema(self, head: TableHead, lines: DataFrame | None, *, is_empty: bool) -> StructType | None:
        """Return the columns of JSON, or none for other rows; None where nothing is there to infer them of."""
        if self._what.rows is not TableRows.JSON:
            return StructType()
        given: StructType | None = None
        if head.recipe is not None:
            own = {json_rows.SEGMENT, json_rows.OFFSET, f"_{json_rows.BIRTH}", *self._directories.fieldNames()}
            own |= {name for name, _ in self._what.columns}
            given = StructType([each for each in head.schema.fields if each.name not in own])
        elif self._what.schema is not None:
            with explained():
                given = json_rows.require_distinct(json_rows.columns_of(self._what.schema))
        if given is not None and (is_empty or not self._what.evolves):
            return given
        if is_empty or lines is None:
            return None
        self._step("infer")
        with explained():
            inferred = json_rows.inferred(self._spark, lines)
        return inferred if given is None else self._widened(given, inferred)

    def _widened(self, old: StructType, new: StructType) -> StructType:
        return json_rows.widened(old, new, types=self._table.widens)

    def _rows(self, lines: DataFrame, schema: StructType, seen: Observation) -> DataFrame:
        """Return the rows of the table, which are counted as they are written, and the bad lines among them."""
        count, bad = F.count(F.lit(1)).alias("rows"), F.lit(0)
        with explained():
            made = lines
            if self._what.rows is TableRows.JSON:
                made, bad = json_rows.parsed(lines, schema), json_rows.is_bad().cast("long")
            made = made.observe(seen, count, F.sum(bad).alias("bad"))
            if self._what.rows is TableRows.JSON:
                made = json_rows.rows(made, schema, self._directories.fieldNames())
            return made.withColumns({name: F.expr(expression) for name, expression in self._what.columns})

    def _add_bad(
        self, table: FollowedTable, start: StreamOffset, end: StreamOffset, schema: StructType, *, is_none: bool
    ) -> None:
        """Bring the table of bad lines to `end`. `is_none`: none is bad from `start` on."""
        head = table.head()
        begin = head.offset or self._opened.stream.earliest()
        if begin == end:
            return
        written = RoundFiles([], end, 0, "")
        if not (is_none and begin == start) and end.bytes > begin.bytes:
            self._step("write bad")
            seen = Observation()
            with explained():
                bad = json_rows.bad_rows(json_rows.parsed(self._between(begin, end), schema), schema)
                written = self._write(bad.observe(seen, F.count(F.lit(1)).alias("rows")), table, end)
            written = replace(written, rows=int(seen.get["rows"]))
        self._step("commit bad")
        table.commit(head, written)

    def _write(self, made: DataFrame, table: FollowedTable, end: StreamOffset) -> RoundFiles:
        fields = self._recipe.partition_by if table is self._table else ()
        with explained(), stages_watched(self._spark, self._show, end.bytes):
            files = HadoopFiles(self._spark, table.staging())
            written = write_files(made, files, files.root, fields, keeps=table.keeps_fields)
        return RoundFiles(written, end, 0, files.root)


def _births(head: TableHead, name: str, what: TableWanted, store_id: str) -> str:
    """Return the store whose births the rows of a table have; nothing if they have none.

    Raises InvalidRequest if rows are to go, and which ones are of dropped bytes is not known.
    """
    births = (store_id if what.drops else "") if head.recipe is None else head.recipe.births
    if what.drops and births != store_id:
        has = f"has rows of store {births}" if births else f"has no column {json_rows.BIRTH}"
        raise InvalidRequest(
            f"{name} {has}, so the rows of dropped bytes are not known",
            remedy="give --dropped delete in the first run of a table",
        )
    return births


def _fitting(made: DataFrame, schema: StructType, name: str) -> DataFrame:
    """Return rows with the types of the table. Raises InvalidRequest for a column that it does not have so."""
    kinds = {each.name: each.dataType for each in schema.fields}
    for each in made.schema.fields:
        kind = kinds.get(each.name)
        if kind is None or not json_rows.takes(kind, each.dataType):
            has = "has no such column" if kind is None else f"has {kind.simpleString()}"
            raise InvalidRequest(
                f"rows have a column {printable(each.name)} of type {each.dataType.simpleString()}, and {name} {has}",
                remedy="add --evolve for new fields of JSON, change the table, or use another one",
            )
    return made.select([F.col(f"`{each.name}`").cast(kinds[each.name]) for each in made.schema.fields])
