"""One partition of a read on an executor: its plain data, and the read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tierfs.base.bytes.frozen import dataclass
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.fetching import ScanFetcher, ScanSource
from tierfs.pipeline.reader.planning import Partition
from tierfs.pipeline.spark.abandoned import to_spark
from tierfs.pipeline.spark.columns import SegmentColumns
from tierfs.pipeline.spark.errors import explained
from tierfs.pipeline.spark.row_reader import ByName, OfSource, RowReader, arrow_schema, segments_batch
from tierfs.pipeline.spark.row_types import RowForm, RowType, SegmentRow

if TYPE_CHECKING:
    from tierfs.pipeline.spark.planning import ReadPlan

_connections = PlaceConnections()


class TierfsPartition(InputPartition):
    """The work of one task, as plain data."""


class TierfsReader(DataSourceReader):
    """A planned read. Executors get it without the plan: Spark sends each partition by itself."""

    def __init__(self, form: RowForm, schema: StructType, planned: ReadPlan) -> None:
        self._form = form
        self._schema = schema
        self._place = planned.place
        self._planned = [TierfsPartition(partition) for partition in planned.partitions]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planned": []}

    def partitions(self) -> list[InputPartition]:
        """Return the plan; Spark makes one empty partition of an empty list."""
        return list(self._planned)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield batches of one partition, on an executor."""
        if partition.value is None:
            return
        with explained():
            yield from to_spark(read_partition(self._form, self._place, self._schema, partition.value))


@dataclass(frozen=True, slots=True)
class ExecutorReader:
    """The part of a stream's reader that executors get: partitions bring everything else."""

    schema: StructType

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield batches of one partition."""
        with explained():
            form, place, value = partition.value
            yield from to_spark(read_partition(form, place, self.schema, value))


def read_partition(
    form: RowForm, place: ScannedStore, schema: StructType, value: Partition | tuple[SegmentRow, ...]
) -> Iterator[Any]:
    """Yield Arrow batches of one partition, on an executor."""
    arrow = arrow_schema(schema)
    columns = SegmentColumns.of(form.row_type, schema)
    by_name = _by_name(form, schema) if columns.of_directories else {}
    if not isinstance(value, Partition):
        yield segments_batch(value, arrow, by_name)
        return
    rows = RowReader(arrow, _of_sources(columns, by_name))
    sources = tuple(part.source for part in value.parts)
    with ScanFetcher(place, connections(), sources) as fetcher:
        if form.row_type is RowType.LINES:
            yield from rows.lines(fetcher, value, form.lines)
        elif form.row_type is RowType.BYTES:
            yield from rows.bytes(fetcher, value, form.block_bytes)
        elif form.row_type is RowType.ENTRIES:
            yield from rows.entries(fetcher, value)
        elif form.row_type is RowType.ROCKETMQ:
            yield from rows.log_messages(fetcher, value)
        else:
            yield from rows.messages(fetcher, value)


def _by_name(form: RowForm, schema: StructType) -> ByName:
    from tierfs.pipeline.spark.partition_columns import values_by_name  # most reads have no such columns

    return values_by_name(form.row_type, schema, form.zone)


def _of_sources(columns: SegmentColumns, by_name: ByName) -> dict[str, OfSource]:
    """Return what makes the value of each column, of the record or of directories, of a task's source."""
    of_record = {name: partial(_fact, index) for index, name in enumerate(columns.of_record)}
    return {**of_record, **{name: partial(_of_name, make) for name, make in by_name.items()}}


def _fact(index: int, source: ScanSource) -> object:
    return source.facts[index]


def _of_name(make: Callable[[str], object], source: ScanSource) -> object:
    return make(source.name)


def connections() -> PlaceConnections:
    """Return the connections of this executor's process, kept from task to task."""
    return _connections
