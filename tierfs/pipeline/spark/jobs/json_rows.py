"""Lines as rows of JSON: their schema, what of it changed, and the lines that are no such rows."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.names import printable

BAD_SCHEMA = StructType().add("segment", "string").add("offset", "long").add("line", "string").add("reason", "string")

# Where a line is from: with an underscore, as logs have fields of the plain names.
SEGMENT, OFFSET = "_segment", "_offset"

# The column of births, in rows of all types but JSON.
BIRTH = "segment_birth"

_PARSED, _CORRUPT = "_tierfs_parsed", "_tierfs_corrupt"
_WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)


def columns_of(ddl: str) -> StructType:
    """Return columns in Spark's terms; none of an empty text. Raises InvalidRequest, or Spark's error."""
    columns = StructType.fromDDL(ddl) if ddl else StructType()
    if not isinstance(columns, StructType):
        raise InvalidRequest(f"{printable(ddl)} is no list of columns", remedy="write NAME TYPE, NAME TYPE")
    return columns


def inferred(spark: SparkSession, lines: DataFrame) -> StructType:
    """Return the schema that Spark infers of lines, which it reads for that. Raises InvalidRequest without objects."""
    jvm: Any = spark.sparkContext._jvm
    texts = getattr(lines.select("value")._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING())
    reader: Any = spark._jsparkSession.read()
    columns = reader.option("columnNameOfCorruptRecord", _CORRUPT).json(texts).schema().json()
    schema = StructType.fromJson(json.loads(columns))
    fields = [each for each in schema.fields if each.name != _CORRUPT]
    if not fields:
        raise InvalidRequest("no line is a JSON object", remedy="give the schema: --schema, or use --type lines")
    return require_distinct(StructType(fields))


def require_distinct(schema: StructType) -> StructType:
    """Return the schema. Raises InvalidRequest for names that differ only in case, or that tierfs needs itself."""
    seen: dict[str, str] = {}
    for name in schema.fieldNames():
        if name in (SEGMENT, OFFSET, f"_{BIRTH}"):
            raise InvalidRequest(f"the lines have a field {name}, which is a column of tierfs", remedy="use --schema")
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidRequest(
                f"the lines have fields {printable(other)} and {printable(name)}, which are one column in SQL",
                remedy="give the schema of the columns that you want: --schema",
            )
    return schema


def parsed(lines: DataFrame, schema: StructType) -> DataFrame:
    """Return the lines with their objects; see `is_bad` and `rows`."""
    wanted = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return lines.withColumn(_PARSED, F.from_json("value", wanted, options))


def is_bad() -> Column:
    """Return whether a line is no object of the schema: it has no JSON, another value, or a field of another type."""
    return F.col(_PARSED).isNull() | F.col(f"{_PARSED}.{_CORRUPT}").isNotNull()


def rows(lines: DataFrame, schema: StructType, directories: list[str]) -> DataFrame:
    """Return the rows of lines that are not bad."""
    columns = [F.col(_PARSED)[name].alias(name) for name in schema.fieldNames()]
    places = [F.col(name).alias(f"_{name}") for name in ("segment", "offset", BIRTH) if name in lines.columns]
    return lines.where(~is_bad()).select(*columns, *directories, *places)


def bad_rows(lines: DataFrame, schema: StructType) -> DataFrame:
    """Return the lines that are bad, with the reason."""
    value, text = F.col("value"), F.col(f"{_PARSED}.{_CORRUPT}")
    wrong = [
        F.when(
            F.get_json_object(value, f"$['{each.name}']").isNotNull() & F.col(_PARSED)[each.name].isNull(),
            F.lit(f"{each.name} is no {each.dataType.simpleString()}"),
        )
        for each in schema.fields
        if "'" not in each.name
    ]
    reason = (
        F.when(F.trim(value) == "", F.lit("an empty line"))
        .when(F.get_json_object(value, "$").isNull(), F.lit("not JSON"))
        .when(~F.ltrim(value).startswith("{") | text.isNull(), F.lit("not a JSON object"))
        .otherwise(F.coalesce(F.nullif(F.concat_ws(", ", *wrong), F.lit("")), F.lit("a field of another type")))
    )
    births = [BIRTH] if BIRTH in lines.columns else []
    return lines.where(is_bad()).select("segment", "offset", value.alias("line"), reason.alias("reason"), *births)


def widened(old: StructType, new: StructType, *, types: bool = True) -> StructType:
    """Return the old columns, wider where new values need it and a table can be, and those that are new behind them.

    `types`: whether a column may have a wider type, and not only more fields.
    """
    columns = {each.name.lower(): each for each in new.fields}
    kept = [
        StructField(each.name, _wider(each.dataType, columns[each.name.lower()].dataType, types))
        if each.name.lower() in columns
        else each
        for each in old.fields
    ]
    known = {each.name.lower() for each in old.fields}
    return StructType([*kept, *(each for each in new.fields if each.name.lower() not in known)])


def _wider(old: DataType, new: DataType, types: bool) -> DataType:
    """Return the type of both, if Iceberg can make one of the other; else the old one, and such lines are bad."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        return widened(old, new, types=types)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_wider(old.elementType, new.elementType, types))
    if isinstance(old, MapType) and isinstance(new, MapType):
        return MapType(old.keyType, _wider(old.valueType, new.valueType, types))
    if not types:
        return old
    if isinstance(old, _WHOLE) and isinstance(new, LongType):
        return new
    if isinstance(old, FloatType) and isinstance(new, DoubleType):
        return new
    if isinstance(old, DecimalType) and isinstance(new, DecimalType) and old.scale == new.scale:
        return DecimalType(max(old.precision, new.precision), old.scale)
    return old


def takes(column: DataType, value: DataType) -> bool:
    """Return whether a column of a table takes values of a type without losing any."""
    same = column.simpleString() == value.simpleString()  # whether values may be null does not matter
    return same or (isinstance(column, _WHOLE) and isinstance(value, _WHOLE) and _rank(value) <= _rank(column))


def _rank(kind: DataType) -> int:
    return _WHOLE.index(type(kind))
