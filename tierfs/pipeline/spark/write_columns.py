"""The columns of a data frame that are written, and their bytes: Arrow does it, no row becomes a Python object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import join, printable, split
from tierfs.pipeline.spark.row_types import RowType
from tierfs.pipeline.spark.write_options import WriteOptions

# The column that names the segment of a row itself.
SEGMENT = "segment"

_DATA = {RowType.LINES: "value", RowType.BYTES: "content"}


@dataclass(frozen=True, slots=True)
class Columns:
    """Places of columns in the batches of a write. Picklable."""

    data: int
    key: int | None
    """The column whose value names a row's target; None: all rows of a task make one segment."""
    named: bool
    """Whether that value is the segment's own name, not that of a directory."""
    separator: bytes

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType, *, stream: bool = False) -> Columns:
        """Find the columns of a data frame. Raises InvalidRequest for one too many, missing or of another type."""
        fields = {field.name: (at, field.dataType) for at, field in enumerate(schema.fields)}
        name = _DATA[options.row_type]
        if len(fields) != len(schema.fields):
            raise InvalidRequest("two columns have the same name", remedy=f"select {name} and, if wanted, {SEGMENT}")
        key = _key(options, fields, stream=stream)
        rest = [column for column in fields if column != key]
        if len(rest) != 1:
            given = ", ".join(map(printable, rest)) or "none"
            raise InvalidRequest(
                f"rows of type {options.row_type} need a column {name} and maybe {SEGMENT} or keyColumn, not {given}",
                remedy=f"select or concatenate to one: df.select(to_json(struct('*')).alias('{name}'))",
            )
        at, kind = fields[rest[0]]
        wanted = (StringType, BinaryType) if options.row_type is RowType.LINES else (BinaryType,)
        if not isinstance(kind, wanted):
            raise _wrong_type(rest[0], kind, " or ".join(allowed.typeName() for allowed in wanted))
        place = None if key is None else fields[key][0]
        return cls(at, place, key is not None and options.key_column is None, options.separator)

    def grouped(self, batch: Any) -> Iterator[tuple[str, memoryview]]:
        """Return the bytes of a batch's rows by key, in the order of the rows; "" is the key without a key column.

        Raises InvalidRequest for a row without a key.
        """
        data = batch.column(self.data).cast(pa.large_binary())
        if self.key is None:
            yield "", self._packed(data)
            return
        keys = batch.column(self.key)
        if keys.null_count:
            name = printable(batch.schema.names[self.key])
            raise InvalidRequest(f"a row has no {name}, so its target is unknown", remedy="filter or fill such rows")
        encoded = keys.dictionary_encode()
        named, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        if len(named) == 1:
            yield named[0], self._packed(data)
            return
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(named)))
        data = data.take(pa.array(order))
        for key, start, end in zip(named, [0, *ends[:-1]], ends, strict=True):
            yield key, self._packed(data[start:end])

    def _packed(self, data: Any) -> memoryview:
        """Return rows back to back, each followed by the separator; one without a value is an empty one."""
        if data.null_count:
            data = data.fill_null(b"")
        if self.separator:
            nothing, separator = (pa.scalar(value, pa.large_binary()) for value in (b"", self.separator))
            data = pc.binary_join_element_wise(data, nothing, separator)
        _, offsets, content = data.buffers()
        if content is None or not len(data):
            return memoryview(b"")
        places = np.frombuffer(offsets, np.int64)[data.offset : data.offset + len(data) + 1]
        return memoryview(content)[int(places[0]) : int(places[-1])]


def segment_name(columns: Columns, key: str, partition: int, batch: str) -> str:
    """Return the name, relative to the target directory, of the segment that one task writes for one key."""
    return key if columns.named else join((*split(key), f"part-{partition:05d}-{batch}"))


def _key(options: WriteOptions, fields: dict[str, tuple[int, DataType]], *, stream: bool) -> str | None:
    name = options.key_column
    if name is None:
        if SEGMENT not in fields:
            return None
        name = SEGMENT
        if stream:
            raise InvalidRequest(
                f"a column {SEGMENT} is not supported for streams: each batch creates new segments",
                remedy=f".option('keyColumn', '{SEGMENT}') writes into directories of these names",
            )
    if name not in fields:
        raise InvalidRequest(
            f"no column {printable(name)}, which is set as keyColumn", remedy=f"columns: {_listed(fields)}"
        )
    if not isinstance(fields[name][1], StringType):
        raise _wrong_type(name, fields[name][1], "string")
    return name


def _wrong_type(name: str, kind: DataType, wanted: str) -> InvalidRequest:
    return InvalidRequest(
        f"the column {printable(name)} is {kind.simpleString()}, not {wanted}", remedy=f"cast it to {wanted}"
    )


def _listed(fields: dict[str, tuple[int, DataType]]) -> str:
    return ", ".join(map(printable, fields))
