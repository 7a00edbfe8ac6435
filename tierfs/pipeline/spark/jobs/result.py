"""The result of a job: rows with named columns, for a terminal, a data frame or a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable

_TYPES = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
SUFFIXES = (".parquet", ".csv", ".json")


@dataclass(frozen=True, slots=True)
class Result:
    """Rows and sums of one job."""

    columns: Mapping[str, str]
    """Names and their types, in Spark's terms."""
    rows: Sequence[tuple[Any, ...]]
    summary: Mapping[str, Any] = field(default_factory=dict)

    def data_frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a data frame."""
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())
        return spark.createDataFrame(list(self.rows), ddl)

    def as_json(self) -> dict[str, Any]:
        """Return rows and sums as one object."""
        return {**self.summary, "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows]}

    def text(self) -> str:
        """Return a table for people, numbers to the right; "" without rows."""
        if not self.rows:
            return ""
        cells = [[_cell(value) for value in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(list(self.columns), *cells, strict=True)]
        right = [kind in ("long", "double") for kind in self.columns.values()]
        return "\n".join(_line(row, widths, right) for row in [list(self.columns), *cells])

    def write(self, path: Path) -> None:
        """Write the rows by the path's suffix: Parquet, CSV with a header, or a JSON object per line."""
        if path.suffix == ".parquet":
            schema = pa.schema([(name, _TYPES[kind]) for name, kind in self.columns.items()])
            columns = [pa.array([row[index] for row in self.rows], field.type) for index, field in enumerate(schema)]
            pa.parquet.write_table(pa.Table.from_arrays(columns, schema=schema), path)
        elif path.suffix == ".csv":
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([list(self.columns), *self.rows])
        else:
            require_suffix(path)
            lines = (json.dumps(dict(zip(self.columns, row, strict=True))) + "\n" for row in self.rows)
            path.write_text("".join(lines))


def require_suffix(path: Path, more: Sequence[str] = ()) -> None:
    """Raise InvalidRequest for a file of no known kind."""
    known = (*SUFFIXES, *more)
    if path.suffix not in known:
        raise InvalidRequest(f"unknown suffix of {path}", remedy=f"use one of {', '.join(known)}")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else printable(str(value))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = (cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(cells, widths, right, strict=True))
    return "  ".join(aligned).rstrip()
