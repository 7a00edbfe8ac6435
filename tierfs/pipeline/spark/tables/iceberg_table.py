"""A table of Apache Iceberg: Spark writes Parquet files, and Iceberg's own library commits them.

Only Iceberg's core is called, on the driver. Its writer for Spark is bound to one version of Spark (1.12.0: to 4.1, and
4.3 fails with IncompatibleClassChangeError), and it cannot commit only if nobody else did. The offset is a property of
the snapshot that has the rows. A commit is an overwrite that deletes nothing, since only that operation validates
that no rows came since a snapshot; Iceberg records it as an append.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tierfs.base.words.errors import Conflict, InvalidRequest, NotFound, Unavailable
from tierfs.base.words.names import printable
from tierfs.pipeline.spark.errors import SPARK
from tierfs.pipeline.spark.jobs.session import cause_of
from tierfs.pipeline.spark.tables import iceberg_types, offset_texts
from tierfs.pipeline.spark.tables.followed_table import (
    RoundFile,
    RoundFiles,
    RowRecipe,
    TableFile,
    TableHead,
    other_run,
)
from tierfs.pipeline.spark.tables.partition_fields import PartitionField
from tierfs.pipeline.spark.tables.run_lock import local_path, only_run
from tierfs.pipeline.spark.tables.staged_rounds import StagedRounds, name_of
from tierfs.pipeline.spark.tables.table_files import HadoopFiles

_OFFSETS, _RECIPE, _STAGED = "tierfs.offsets", "tierfs.recipe", "tierfs.staged"
_MAPPING = "schema.name-mapping.default"
_CATALOG = "spark.sql.catalog."

# Of tables that tierfs makes. Otherwise each commit leaves a file with all snapshots for ever.
_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
}

# Rows that others commit during a round make the commit start again; more of them than this is no coincidence.
_ATTEMPTS = 20

# Of the runtime, whose jar has the library: the one for Spark 4.1 serves all later ones.
_OF_SPARK_4_0, _NEWEST = "4.0_2.13:1.11.0", "4.1_2.13:1.12.0"


def coordinates() -> str:
    """Return the Maven coordinates of Iceberg's runtime whose library works with this Spark."""
    return f"org.apache.iceberg:iceberg-spark-runtime-{_OF_SPARK_4_0 if SPARK < (4, 1) else _NEWEST}"


class IcebergTable:
    """One table in a catalog that Spark's configuration defines: `spark.sql.catalog.NAME.…`."""

    keeps_fields = True
    widens = True

    def __init__(self, spark: SparkSession, name: str) -> None:
        """Raises InvalidRequest for a name without a catalog, and NotFound without Iceberg's library."""
        self.name = name
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm
        self._jvm, self._iceberg = jvm, jvm.org.apache.iceberg
        catalog, *namespace, table = name.split(".")
        if not namespace or not all((catalog, *namespace, table)):
            raise InvalidRequest(
                f"{printable(name)} does not name a table of a catalog",
                remedy="write CATALOG.NAMESPACE.TABLE, or a directory with a / for Parquet",
            )
        self._require_library()
        self._catalog = self._open(catalog)
        names = self._iceberg.catalog
        self._namespace = names.Namespace.of(self._strings(namespace))
        self._identifier = names.TableIdentifier.of(self._namespace, table)
        self._table: Any = None

    @property
    def location(self) -> str:
        """URL of its directory."""
        with _explained(self.name):
            return "" if self._table is None else str(self._table.location())

    def head(self) -> TableHead:
        """Return the newest snapshot that has an offset; commits of others, such as compactions, may follow it.

        Raises InvalidRequest if a followed table has no such snapshot any more.
        """
        with _explained(self.name):
            if self._table is None and not self._catalog.tableExists(self._identifier):
                return TableHead()
            self._table = self._table or self._catalog.loadTable(self._identifier)
            self._table.refresh()
            schema = json.loads(self._iceberg.SchemaParser.toJson(self._table.schema()))
            recipe = self._table.properties().get(_RECIPE)
            current = self._table.currentSnapshot()
            offsets = self._offsets(current)
            if recipe is not None and current is not None and offsets is None:
                raise InvalidRequest(
                    f"no snapshot of {self.name} has an offset any more, so that its end is unknown: they were expired",
                    remedy="write another table; keep its last snapshot of tierfs when you expire snapshots",
                )
            return TableHead(
                exists=True,
                offset=None if offsets is None else offset_texts.unpacked(offsets),
                recipe=None if recipe is None else RowRecipe.of(recipe, self.name),
                schema=iceberg_types.to_spark(schema),
                mark=0 if current is None else current.snapshotId(),
                rows=0 if current is None else int(current.summary().get("total-records") or 0),
            )

    def create(self, schema: StructType, recipe: RowRecipe) -> None:
        """Create the table, or take over one that exists: its rows stay. Files without ids get a mapping of names."""
        with _explained(self.name):
            columns = self._iceberg.SchemaParser.fromJson(json.dumps(iceberg_types.to_iceberg(schema)))
            if self._table is None:
                namespaces = self._jvm.java.lang.Class.forName(
                    "org.apache.iceberg.catalog.SupportsNamespaces", True, self._loader()
                )
                if namespaces.isInstance(self._catalog) and not self._catalog.namespaceExists(self._namespace):
                    self._catalog.createNamespace(self._namespace)
                properties = {**_PROPERTIES, _RECIPE: recipe.as_text(), _MAPPING: self._mapping(columns)}
                making = self._catalog.buildTable(self._identifier, columns)
                making = making.withPartitionSpec(self._spec(columns, recipe.partition_by))
                self._table = making.withProperties(self._map(properties)).create()
                return
            self._require_partition(recipe.partition_by)
            change = self._table.updateProperties().set(_RECIPE, recipe.as_text())
            if self._table.properties().get(_MAPPING) is None:
                change = change.set(_MAPPING, self._mapping(self._table.schema()))
            change.commit()

    def widen(self, schema: StructType) -> None:
        """Add and widen columns by name; Iceberg extends the mapping of names itself."""
        with _explained(self.name):
            columns = self._iceberg.SchemaParser.fromJson(json.dumps(iceberg_types.to_iceberg(schema)))
            self._table.updateSchema().unionByNameWith(columns).commit()

    def staging(self) -> str:
        """Return a directory among the table's data: files that no snapshot has are not in the table."""
        with _explained(self.name):
            return self._rounds().new()

    def commit(self, head: TableHead, written: RoundFiles) -> None:
        """Add the files to the current snapshot if the newest offset is still that of `head`, else raise Conflict."""
        self._commit(head, written, lambda: self._overwrite(offset_texts.packed(written.end)))

    def replace(self, head: TableHead, old: Sequence[TableFile], new: RoundFiles, dropped: int) -> None:
        """Commit without a new offset: a replacement of rows by themselves, or a deletion of some."""

        def change() -> Any:
            if dropped:
                # Rows that another run added would be there, and not the offset of these.
                made = self._overwrite(None if head.offset is None else offset_texts.packed(head.offset))
                made = made.validateNoConflictingDeletes()
            else:
                made = self._table.newRewrite()
            for each in old:
                made = made.deleteFile(each.handle)
            return made

        self._commit(head, new, change)

    def _overwrite(self, offsets: str | None) -> Any:
        change = self._table.newOverwrite()
        if offsets is not None:
            change = change.set(_OFFSETS, offsets)
        # Rows that came since the snapshot are a conflict, whatever they are. Without a snapshot, any rows are.
        change = change.conflictDetectionFilter(self._iceberg.expressions.Expressions.alwaysTrue())
        return change.validateNoConflictingData()

    def _commit(self, head: TableHead, written: RoundFiles, make: Callable[[], Any]) -> None:
        """Commit a change with the files, at the offset of `head`; then forget that they were staged."""
        staged = name_of(written.directory)
        with _explained(self.name):
            added = [self._data_file(file) for file in written.files]
            for _ in range(_ATTEMPTS):
                change = make().set(_STAGED, staged) if staged else make()
                if head.mark:
                    change = change.validateFromSnapshot(head.mark)
                for file in added:
                    change = change.addFile(file)
                try:
                    change.commit()
                    self._rounds().committed(written.directory)
                    return
                except Py4JJavaError as exc:
                    if _kind(exc) not in ("ValidationException", "CommitFailedException"):
                        raise
                    now = self.head()
                    if now.offset != head.offset:
                        raise other_run(self.name) from None
                    head = now
        raise Conflict(f"{self.name} changes all the time", remedy="run the job again")

    def data_files(self) -> list[TableFile]:
        """Return the Parquet files of the current snapshot, in the table's present partitions."""
        self.head()
        with _explained(self.name):
            self._require_one_meaning()
            spec = self._table.spec()
            files = []
            with closing(self._table.newScan().planFiles()) as planned:
                tasks = planned.iterator()
                while tasks.hasNext():
                    task = tasks.next()
                    file = task.file()
                    is_ours = file.specId() == spec.specId() and file.format().toString() == "PARQUET"
                    files.append(
                        TableFile(
                            file.location(),
                            file.fileSizeInBytes(),
                            spec.partitionToPath(file.partition()) if is_ours else "",
                            is_ours and task.deletes().isEmpty(),
                            file,
                        )
                    )
            return files

    def expire(self, before_ms: int) -> int:
        """Expire old snapshots but the current one, those of branches and tags, and the way to the last offset."""
        self.head()
        with _explained(self.name):
            kept = {each.snapshotId() for each in self._table.refs().values()}
            snapshot = self._table.currentSnapshot()
            while snapshot is not None:
                kept.add(snapshot.snapshotId())
                parent = None if snapshot.summary().get(_OFFSETS) else snapshot.parentId()
                snapshot = None if parent is None else self._table.snapshot(parent)
            old = [
                each.snapshotId()
                for each in self._table.snapshots()
                if each.timestampMillis() < before_ms and each.snapshotId() not in kept
            ]
            # Otherwise Iceberg expires all that are older than five days too.
            change = self._table.expireSnapshots().expireOlderThan(0)
            for number in old:
                change = change.expireSnapshotId(number)
            if old:
                change.commit()
            return len(old)

    def renew(self, head: TableHead) -> None:
        """Do nothing: the offset stays until someone removes it."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the table's directory if it is on a local disk; remove files of rounds that were never committed."""
        location = self.location
        if not location:
            yield
            return
        with _explained(self.name):
            files = HadoopFiles(self._spark, location)
        with only_run(location, self.name, files):
            with _explained(self.name):
                self._rounds().sweep(alone=local_path(location) is not None, committed=self._staged)
            yield

    def _staged(self) -> set[str | None]:
        """Return the names of staged directories in all snapshots."""
        return {each.summary().get(_STAGED) for each in self._table.snapshots()}

    def _rounds(self) -> StagedRounds:
        return StagedRounds(HadoopFiles(self._spark, self.location), f"{self.location}/data")

    def _require_one_meaning(self) -> None:
        """Raise InvalidRequest if a name of a column was another's before: files are read by names."""
        schemas = [self._iceberg.SchemaParser.toJson(each) for each in self._table.schemas().values()]
        name = iceberg_types.ambiguous(
            [json.loads(each) for each in schemas],
            json.loads(self._iceberg.SchemaParser.toJson(self._table.schema())),
        )
        if name is not None:
            raise InvalidRequest(
                f"a column {printable(name)} of {self.name} was renamed or removed, so tierfs cannot rewrite its files",
                remedy="run without --compact and --dropped delete; Iceberg's rewrite_data_files compacts such a table",
            )

    def _require_library(self) -> None:
        try:
            self._jvm.java.lang.Class.forName("org.apache.iceberg.CatalogUtil", True, self._loader())
        except Py4JJavaError as exc:
            raise NotFound(
                "Iceberg's library is not there",
                remedy=f"--conf spark.jars.packages={coordinates()}, or put this jar into the jars of Spark",
            ) from exc

    def _loader(self) -> Any:
        return self._jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def _open(self, catalog: str) -> Any:
        given = self._spark.conf.getAll
        prefix = f"{_CATALOG}{catalog}."
        options = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
        if not options:
            raise InvalidRequest(
                f"there is no catalog {printable(catalog)}",
                remedy=f"--warehouse PATH for a catalog of files, or --conf {_CATALOG}{catalog}.type=… and the like",
            )
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
        with _explained(catalog):
            return self._iceberg.CatalogUtil.buildIcebergCatalog(catalog, self._map(options), configuration)

    def _offsets(self, snapshot: Any) -> str | None:
        """Return the offset of a snapshot, or of the nearest one before it."""
        while snapshot is not None:
            text: str | None = snapshot.summary().get(_OFFSETS)
            if text is not None:
                return text
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._table.snapshot(parent)
        return None

    def _spec(self, columns: Any, fields: Sequence[PartitionField]) -> Any:
        spec = self._iceberg.PartitionSpec.builderFor(columns)
        for each in fields:
            spec = getattr(spec, each.transform.value)(each.column)
        return spec.build()

    def _require_partition(self, fields: Sequence[PartitionField]) -> None:
        """Raise InvalidRequest if an existing table is partitioned by something else."""
        spec = self._table.spec()
        columns = self._table.schema()
        actual = [
            (columns.findColumnName(each.sourceId()), each.transform().toString())
            for each in (spec.fields().get(number) for number in range(spec.fields().size()))
        ]
        if actual != [(each.column, str(each.transform)) for each in fields]:
            known = ", ".join(f"{transform}({column})" for column, transform in actual) or "nothing"
            raise InvalidRequest(
                f"{self.name} is partitioned by {known}",
                remedy="the same in --partition-by; tierfs has columns, and year, month, day and hour of times",
            )

    def _mapping(self, columns: Any) -> str:
        """Return the mapping of names to ids: Spark's files have names alone."""
        mapping = self._iceberg.mapping
        text: str = mapping.NameMappingParser.toJson(mapping.MappingUtil.create(columns))
        return text

    def _data_file(self, file: RoundFile) -> Any:
        """Return a file with what its footer tells: rows, and bounds of columns."""
        mapping = self._iceberg.mapping.NameMappingParser.fromJson(self._table.properties().get(_MAPPING))
        metrics = self._iceberg.parquet.ParquetUtil.fileMetrics(
            self._table.io().newInputFile(file.path), self._iceberg.MetricsConfig.forTable(self._table), mapping
        )
        values = self._jvm.java.util.ArrayList()
        for value in file.values:
            values.add(value)
        made = self._iceberg.DataFiles.builder(self._table.spec()).withPath(file.path).withFormat("PARQUET")
        made = made.withFileSizeInBytes(file.size_bytes).withMetrics(metrics)
        return (made.withPartitionValues(values) if file.values else made).build()

    def _map(self, values: Mapping[str, str]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def _strings(self, values: Sequence[str]) -> Any:
        gateway: Any = self._spark.sparkContext._gateway
        array = gateway.new_array(self._jvm.java.lang.String, len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn Java's errors into Unavailable, in one line."""
    try:
        yield
    except Py4JJavaError as exc:
        raise Unavailable(f"{name}: {cause_of(exc)}") from exc


def _kind(error: Py4JJavaError) -> str:
    kind: str = error.java_exception.getClass().getSimpleName()
    return kind
