"""Columns of Spark as Iceberg's schema has them in JSON, and back. Pure but for the types of Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import types as T

from tierfs.base.words.errors import InvalidRequest

_PLAIN: Mapping[type[T.DataType], str] = {
    T.StringType: "string",
    T.LongType: "long",
    T.IntegerType: "int",
    T.ShortType: "int",
    T.ByteType: "int",
    T.DoubleType: "double",
    T.FloatType: "float",
    T.BooleanType: "boolean",
    T.BinaryType: "binary",
    T.DateType: "date",
    T.TimestampType: "timestamptz",
    T.TimestampNTZType: "timestamp",
}
_SPARK: Mapping[str, T.DataType] = {
    "string": T.StringType(),
    "uuid": T.StringType(),
    "long": T.LongType(),
    "int": T.IntegerType(),
    "double": T.DoubleType(),
    "float": T.FloatType(),
    "boolean": T.BooleanType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
    "timestamptz": T.TimestampType(),
    "timestamp": T.TimestampNTZType(),
}


def to_iceberg(schema: T.StructType) -> dict[str, Any]:
    """Return a schema with new ids. Raises InvalidRequest for a type that Iceberg does not have."""
    numbers = itertools.count(1)
    return {"schema-id": 0, **_struct(schema, lambda: next(numbers))}


def _struct(kind: T.StructType, new_id: Callable[[], int]) -> dict[str, Any]:
    fields = [{"id": new_id(), "name": each.name, "required": False} for each in kind.fields]
    for field, each in zip(fields, kind.fields, strict=True):
        field["type"] = _type(each.dataType, new_id)
    return {"type": "struct", "fields": fields}


def _type(kind: T.DataType, new_id: Callable[[], int]) -> Any:
    if isinstance(kind, T.StructType):
        return _struct(kind, new_id)
    if isinstance(kind, T.ArrayType):
        number = new_id()
        element = _type(kind.elementType, new_id)
        return {"type": "list", "element-id": number, "element-required": False, "element": element}
    if isinstance(kind, T.MapType):
        key, value = new_id(), new_id()
        of_key = {"key-id": key, "key": _type(kind.keyType, new_id)}
        of_value = {"value-id": value, "value-required": False, "value": _type(kind.valueType, new_id)}
        return {"type": "map", **of_key, **of_value}
    if isinstance(kind, T.DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    text = _PLAIN.get(type(kind))
    if text is None:
        raise InvalidRequest(f"Iceberg has no type for {kind.simpleString()}", remedy="cast it: --schema, --column")
    return text


def to_spark(schema: Mapping[str, Any]) -> T.StructType:
    """Return the columns of a schema of Iceberg. Raises InvalidRequest for a type that tierfs does not write."""
    return T.StructType(
        [T.StructField(each["name"], _of(each["type"]), not each["required"]) for each in schema["fields"]]
    )


def ambiguous(earlier: Iterable[Mapping[str, Any]], now: Mapping[str, Any]) -> str | None:
    """Return the name of a column that another one had, or that none has any more; None if there is none."""
    current = dict(_ids(now))
    return next((name for schema in earlier for name, number in _ids(schema) if current.get(name) != number), None)


def _ids(kind: Any, above: str = "") -> Iterator[tuple[str, int]]:
    """Yield the full names of fields with their ids."""
    if isinstance(kind, str):
        return
    for each in kind.get("fields", ()):
        yield f"{above}{each['name']}", each["id"]
        yield from _ids(each["type"], f"{above}{each['name']}.")
    for part in ("element", "key", "value"):
        if part in kind:
            yield from _ids(kind[part], f"{above}{part}.")


def _of(kind: Any) -> T.DataType:
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
            return T.DecimalType(int(precision), int(scale))
        if kind not in _SPARK:
            raise InvalidRequest(f"the table has a column of type {kind}, which tierfs does not write")
        return _SPARK[kind]
    if kind["type"] == "struct":
        return to_spark(kind)
    if kind["type"] == "list":
        return T.ArrayType(_of(kind["element"]))
    return T.MapType(_of(kind["key"]), _of(kind["value"]))
