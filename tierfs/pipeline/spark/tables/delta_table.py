"""A table of Delta Lake: Spark writes Parquet files, and the package deltalake commits them.

No release of Delta's own library works with Spark 4.3, and none is needed: the log is a directory of JSON. A commit
follows exactly one version of the table. If another one came first, the offset is read again, and if it has not moved
the files are committed on top of that. The offset is in the commit that has the rows, so a rollback takes it back.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import unquote

import deltalake
import deltalake.exceptions
import pyarrow as pa
from deltalake.transaction import AddAction, CommitProperties, RemoveAction
from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, IntegerType, StructField, StructType

from tierfs.base.words.errors import AlreadyExists, Conflict, InvalidRequest, Unavailable
from tierfs.base.words.names import printable
from tierfs.pipeline.spark.jobs.session import cause_of
from tierfs.pipeline.spark.jobs.tasks import explained
from tierfs.pipeline.spark.tables import offset_texts
from tierfs.pipeline.spark.tables.delta_storage import place_of
from tierfs.pipeline.spark.tables.followed_table import (
    RoundFile,
    RoundFiles,
    RowRecipe,
    TableFile,
    TableHead,
    other_run,
)
from tierfs.pipeline.spark.tables.parquet_footers import read_footer
from tierfs.pipeline.spark.tables.partition_fields import PartitionField, TimePart
from tierfs.pipeline.spark.tables.run_lock import local_path, only_run
from tierfs.pipeline.spark.tables.staged_rounds import StagedRounds, name_of
from tierfs.pipeline.spark.tables.table_files import ABANDONED_MS, HadoopFiles

# In commits; the recipe in the properties of the table.
_OFFSETS, _STAGED, _COMMIT, _BEGAN = "tierfs.offsets", "tierfs.staged", "tierfs.commit", "tierfs.began"
_RECIPE = "tierfs.recipe"

# Rows that others commit during a round make the commit start again; more of them than this is no coincidence.
_ATTEMPTS = 20

# Logs of Delta keep commits for 30 days, by default. An offset that is older than this is written again, or than a
# quarter of the time that a table has for it.
_REPEATED_MS = 7 * 24 * 3600 * 1000
_KEPT, _INTERVAL = "delta.logRetentionDuration", re.compile(r"interval ([0-9]+) (minute|hour|day|week)s?")
_HOUR_MS = 3600 * 1000
_UNITS_MS = {"minute": _HOUR_MS // 60, "hour": _HOUR_MS, "day": 24 * _HOUR_MS, "week": 7 * 24 * _HOUR_MS}

# The writers that a table may need: they ask nothing of files that those of a round do not have.
_PLAIN_VERSION, _FEATURES_VERSION = 2, 7
_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
# In the metadata of a column: what its values must be.
_INVARIANT = "delta.invariants"

# In names of columns, without a mapping of names.
_FORBIDDEN = set(" ,;{}()\n\t=")

Entry: TypeAlias = Mapping[str, Any]


class DeltaTable:
    """One directory or URL with a log of Delta."""

    keeps_fields = True
    widens = False

    def __init__(self, spark: SparkSession, target: str) -> None:
        """Raises the error of Spark for a target that it cannot reach, and InvalidRequest for other storage."""
        self.name = target
        with explained():
            self._spark, self._files = spark, HadoopFiles(spark, target)
        self.location = self._files.root
        self._address, self._options = place_of(spark, self.location)
        self._rounds = StagedRounds(self._files, self.location)
        self._table: deltalake.DeltaTable | None = None
        self._due_ms = 0
        """The time at which the offset of the last head is to be written again."""

    def head(self) -> TableHead:
        """Return the newest version, with the offset of the newest commit that has one.

        Raises InvalidRequest for a table that needs other writers, or whose last offset is not in its log any more.
        """
        with _explained(self.name):
            table = self._newest()
            if table is None:
                return TableHead()
            text = table.metadata().configuration.get(_RECIPE)
            recipe = None if text is None else RowRecipe.of(text, self.name)
            entry = {} if recipe is None else self._last_offset(table)
            offsets = entry.get(_OFFSETS)
            self._due_ms = int(entry.get("timestamp") or 0) + _repeated_ms(table.metadata().configuration)
            return TableHead(
                exists=True,
                offset=None if offsets is None else offset_texts.unpacked(offsets),
                recipe=recipe,
                schema=_without(_columns(table), () if recipe is None else recipe.partition_by),
                mark=table.version(),
                rows=sum(each.get("num_records") or 0 for each in _actions(table)),
            )

    def create(self, schema: StructType, recipe: RowRecipe) -> None:
        """Create the table, or take over one that exists: its rows stay.

        Parts of times that it is partitioned by are columns. Raises AlreadyExists for a directory with other files.
        """
        _require_names(schema)
        columns = StructType([*schema.fields, *_parts(recipe.partition_by)])
        with _explained(self.name):
            table = self._newest()
            began = CommitProperties(custom_metadata={_BEGAN: "1"}, max_commit_retries=0)
            if table is None:
                if any(not name.startswith("_") for name in self._files.names(self.location)):
                    raise AlreadyExists(f"{self.name} is not empty, and no table", remedy="use another directory")
                deltalake.DeltaTable.create(
                    self._address,
                    deltalake.Schema.from_json(columns.json()),
                    mode="error",
                    partition_by=[each.name for each in recipe.partition_by],
                    configuration={_RECIPE: recipe.as_text()},
                    storage_options=self._options,
                    commit_properties=began,
                    raise_if_key_not_exists=False,
                )
                return
            self._require_partition(table, columns, recipe.partition_by)
            table.alter.set_table_properties(
                {_RECIPE: recipe.as_text()}, raise_if_not_exists=False, commit_properties=began
            )

    def widen(self, schema: StructType) -> None:
        """Add columns, and fields in them."""
        _require_names(schema)
        with _explained(self.name):
            table = self._require()
            known = {each.name: each for each in _columns(table).fields}
            new = [each for each in schema.fields if known.get(each.name) != each]
            table.alter.add_columns([deltalake.Field.from_json(each.json()) for each in new])

    def staging(self) -> str:
        """Return a directory in that of the table: files that are not in the log are not in the table."""
        with explained():
            return self._rounds.new()

    def commit(self, head: TableHead, written: RoundFiles) -> None:
        """Add the files to the newest version if its offset is still that of `head`, else raise Conflict."""
        self._commit(head, written, ())

    def replace(self, head: TableHead, old: Sequence[TableFile], new: RoundFiles, dropped: int) -> None:
        """Commit with the same offset. For readers of changes, rows that were only moved are none."""
        self._commit(head, new, old, is_change=bool(dropped))

    def data_files(self) -> list[TableFile]:
        """Return the files of the newest version."""
        with _explained(self.name):
            return [
                TableFile(
                    f"{self.location}/{unquote(each['path'])}",
                    each["size_bytes"],
                    json.dumps(each.get("partition"), default=str),
                    handle=each,
                )
                for each in _actions(self._require())
            ]

    def expire(self, before_ms: int) -> int:
        """Delete the files that no version since a time has; return their number. Old versions cannot be read then.

        Files that no version ever had may be those of a writer at work: only old ones go.
        """
        with _explained(self.name):
            age_ms = max(0, time.time_ns() // 1_000_000 - before_ms)
            hours = -(-age_ms // _HOUR_MS) if age_ms >= _HOUR_MS else 0
            gone = self._require().vacuum(
                hours, dry_run=False, enforce_retention_duration=False, full=hours * _HOUR_MS >= ABANDONED_MS
            )
            return len(gone)

    def renew(self, head: TableHead) -> None:
        """Write an old offset again: others may commit while no rows come, and then the log is shortened."""
        if head.offset is not None and time.time_ns() // 1_000_000 > self._due_ms:
            self.commit(head, RoundFiles([], head.offset, 0, ""))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the directory if it is on a local disk; remove files of killed rounds, and write an old offset again."""
        with only_run(self.location, self.name, self._files):
            is_alone = local_path(self.location) is not None
            with explained(), _explained(self.name):
                self._rounds.sweep(alone=is_alone, committed=self._committed)
            self.renew(self.head())
            yield

    def _commit(
        self, head: TableHead, written: RoundFiles, old: Sequence[TableFile], *, is_change: bool = True
    ) -> None:
        name = uuid.uuid4().hex
        custom = {_OFFSETS: offset_texts.packed(written.end), _COMMIT: name}
        if written.directory:
            custom[_STAGED] = name_of(written.directory)
        # Another version in between is never passed over: it may be of another run.
        properties = CommitProperties(custom_metadata=custom, max_commit_retries=0)
        assert head.recipe is not None
        fields = [each.name for each in head.recipe.partition_by]
        with explained():
            added = [self._added(each, fields, is_change=is_change) for each in written.files]
        removed = [_removed(each, is_change=is_change) for each in old]
        for _ in range(_ATTEMPTS):
            now = self.head()
            if now.offset != head.offset:
                raise other_run(self.name)
            with _explained(self.name):
                table = self._require()
                _require_files(table, old, self.name)
                try:
                    table.create_write_transaction(
                        [*added, *removed], "append", table.schema(), fields, commit_properties=properties
                    )
                except deltalake.exceptions.CommitFailedError:
                    # A request whose answer was lost is repeated, and then refused because of itself.
                    if not self._has_commit(now.mark, name):
                        if self._require().version() == now.mark:
                            raise
                        continue
            with explained():
                self._rounds.committed(written.directory)
            return
        raise Conflict(f"{self.name} changes all the time", remedy="run the job again")

    def _added(self, file: RoundFile, fields: Sequence[str], *, is_change: bool) -> AddAction:
        """Return a file as a commit adds it; the library escapes its path."""
        values = dict(zip(fields, file.values, strict=True))
        stats = json.dumps(read_footer(self._spark, file.path).as_delta())
        path = file.path.removeprefix(f"{self.location}/")
        return AddAction(path, file.size_bytes, values, time.time_ns() // 1_000_000, is_change, stats)

    def _newest(self) -> deltalake.DeltaTable | None:
        """Return the newest version; None if there is no table. Raises InvalidRequest if it needs other writers."""
        if self._table is not None:
            self._table.update_incremental()
        elif deltalake.DeltaTable.is_deltatable(self._address, self._options):
            self._table = deltalake.DeltaTable(self._address, storage_options=self._options)
        if self._table is not None:
            _require_plain(self._table, self.name)
        return self._table

    def _require(self) -> deltalake.DeltaTable:
        table = self._newest()
        if table is None:
            raise Unavailable(f"{self.name} has no log any more", remedy="was it deleted?")
        return table

    def _last_offset(self, table: deltalake.DeltaTable) -> Entry:
        """Return the newest commit with an offset, or that with which tierfs began.

        A rollback continues at the version that it restored. Raises InvalidRequest if no such commit is left.
        """
        version = table.version()
        for entry in _history(table):
            if entry["version"] > version:
                continue
            if _OFFSETS in entry or _BEGAN in entry:
                return entry
            if entry.get("operation") == "RESTORE":
                version = self._restored(entry)
        raise InvalidRequest(
            f"no commit in the log of {self.name} has an offset any more, so that its end is unknown",
            remedy="write another table; follow it at least every three weeks, as logs keep commits for 30 days",
        )

    def _restored(self, entry: Entry) -> int:
        version = (entry.get("operationParameters") or {}).get("version")
        if version is None:
            raise InvalidRequest(
                f"{self.name} was restored to a time, so that its end is unknown",
                remedy="restore it to a version by its number",
            )
        return int(version)

    def _committed(self) -> set[str | None]:
        return {entry.get(_STAGED) for entry in _history(self._require())}

    def _has_commit(self, mark: int, name: str) -> bool:
        """Return whether a version after `mark` is the commit of that name."""
        return any(
            entry.get(_COMMIT) == name for entry in _history(self._require()) if int(entry["version"]) == mark + 1
        )

    def _require_partition(
        self, table: deltalake.DeltaTable, columns: StructType, fields: Sequence[PartitionField]
    ) -> None:
        """Raise InvalidRequest if an existing table is partitioned by something else."""
        names, kinds = [each.name for each in fields], {each.name: each.dataType for each in _columns(table).fields}
        if table.metadata().partition_columns != names:
            known = ", ".join(table.metadata().partition_columns) or "nothing"
            raise InvalidRequest(f"{self.name} is partitioned by {known}", remedy="the same in --partition-by")
        for each in _parts(fields):
            if kinds[each.name] != each.dataType:
                raise InvalidRequest(
                    f"the column {printable(each.name)} of {self.name} is {kinds[each.name].simpleString()}, not "
                    f"{each.dataType.simpleString()}",
                    remedy="use another table",
                )


def _history(table: deltalake.DeltaTable) -> Iterator[Entry]:
    """Yield the commits of a table that its log has, the newest first. Each is a file: few are read if few are used."""
    seen, limit = 0, 1
    while True:
        entries = table.history(limit)
        yield from entries[seen:]
        if len(entries) < limit:
            return
        seen, limit = limit, limit * 8


def _repeated_ms(configuration: Mapping[str, str]) -> int:
    """Return the age at which an offset is written again."""
    kept = _INTERVAL.fullmatch(configuration.get(_KEPT, "").strip().lower())
    return _REPEATED_MS if kept is None else min(_REPEATED_MS, int(kept[1]) * _UNITS_MS[kept[2]] // 4)


def _actions(table: deltalake.DeltaTable) -> list[dict[str, Any]]:
    """Return the files of a version."""
    actions: list[dict[str, Any]] = pa.table(table.get_add_actions()).to_pylist()
    return actions


def _columns(table: deltalake.DeltaTable) -> StructType:
    return StructType.fromJson(json.loads(table.schema().to_json()))


def _parts(fields: Sequence[PartitionField]) -> list[StructField]:
    """Return the columns of parts of times, which a table has for its partitions."""
    return [
        StructField(each.name, DateType() if each.transform is TimePart.DAY else IntegerType())
        for each in fields
        if each.transform is not TimePart.IDENTITY
    ]


def _without(schema: StructType, fields: Sequence[PartitionField]) -> StructType:
    names = {each.name for each in _parts(fields)}
    return StructType([each for each in schema.fields if each.name not in names])


def _removed(file: TableFile, *, is_change: bool) -> RemoveAction:
    return RemoveAction(unquote(file.handle["path"]), is_change, time.time_ns() // 1_000_000, file.size_bytes)


def _require_files(table: deltalake.DeltaTable, old: Sequence[TableFile], name: str) -> None:
    """Raise Conflict unless a version has all of these files: the library itself would remove one again."""
    if old and not {each.handle["path"] for each in old} <= {each["path"] for each in _actions(table)}:
        raise Conflict(f"another program replaced files of {name} meanwhile", remedy="run the job again")


def _require_plain(table: deltalake.DeltaTable, name: str) -> None:
    """Raise InvalidRequest for a table whose files have to be other than Spark's writer of Parquet makes them."""
    protocol = table.protocol()
    version, features = protocol.min_writer_version, set(protocol.writer_features or ())
    more = sorted(features - _FEATURES)
    if version not in range(_PLAIN_VERSION + 1) and version != _FEATURES_VERSION:
        more = [f"writers of version {version}"]
    if _INVARIANT in table.schema().to_json():
        more.append("conditions on columns")
    if more:
        raise InvalidRequest(
            f"{name} needs what tierfs does not write: {', '.join(more)}",
            remedy="let tierfs make a table, or drop these features",
        )


def _require_names(schema: StructType) -> None:
    for name in schema.fieldNames():
        if _FORBIDDEN & set(name):
            raise InvalidRequest(
                f"Delta has no columns with such a name: {printable(name)}", remedy="choose columns: --schema"
            )


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn the errors of the library into Unavailable, in one line."""
    try:
        yield
    except (deltalake.exceptions.DeltaError, OSError) as exc:
        raise Unavailable(f"{name}: {cause_of(exc)}") from exc
