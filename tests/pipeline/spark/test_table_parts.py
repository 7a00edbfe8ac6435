"""The parts of tables that need no session: offsets as text, fields of partitions, types."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from tierfs.base.words.errors import InvalidRequest
from tierfs.pipeline.reader.stream_plan import StreamOffset
from tierfs.pipeline.spark.jobs.json_rows import takes, widened
from tierfs.pipeline.spark.tables import iceberg_types, offset_texts
from tierfs.pipeline.spark.tables.followed_table import RowRecipe
from tierfs.pipeline.spark.tables.partition_fields import parse_fields

SCHEMA = (
    StructType()
    .add("n", IntegerType())
    .add("amount", DecimalType(10, 2))
    .add("at", TimestampType())
    .add("properties", MapType(StringType(), StringType()))
    .add("parts", ArrayType(StructType().add("payload", BinaryType())))
)


def test_an_offset_of_many_open_segments_is_packed() -> None:
    few = StreamOffset("s", "lines of logs (1)", 9, {3: 7, 4: 1 << 40}, 12)
    many = StreamOffset("s", "lines of logs (1)", 20_000, {birth: birth * 977 for birth in range(1, 10_001)}, 12)
    assert offset_texts.packed(few).startswith('{"bytes":12,')
    assert offset_texts.unpacked(offset_texts.packed(few)) == few
    assert offset_texts.unpacked(offset_texts.packed(many)) == many
    assert len(offset_texts.packed(many)) < 100_000
    for text in ("zlib:%", "zlib:AAAA", "{"):
        with pytest.raises(InvalidRequest, match="no offset that tierfs can read"):
            offset_texts.unpacked(text)


def test_fields_of_partitions() -> None:
    fields = parse_fields(["host", " days(at)", "hour(at)", ""])
    assert [(each.text, each.name) for each in fields] == [
        ("host", "host"),
        ("day(at)", "at_day"),
        ("hour(at)", "at_hour"),
    ]
    for text in ("bucket(8, host)", "day(", "week(at)"):
        with pytest.raises(InvalidRequest, match="no field to partition by"):
            parse_fields([text])
    with pytest.raises(InvalidRequest, match="no column at to partition by"):
        fields[1].require_in(StructType().add("host", "string"))
    with pytest.raises(InvalidRequest, match="needs a time, and at is string"):
        fields[1].require_in(StructType().add("at", "string"))


def test_types_of_iceberg_and_back() -> None:
    schema = iceberg_types.to_iceberg(SCHEMA)
    ids = [each["id"] for each in schema["fields"]]
    assert ids == [1, 2, 3, 4, 5]
    assert iceberg_types.to_spark(schema) == SCHEMA
    assert schema["fields"][2]["type"] == "timestamptz"
    with pytest.raises(InvalidRequest, match="Iceberg has no type for void"):
        iceberg_types.to_iceberg(StructType().add("x", "void"))
    with pytest.raises(InvalidRequest, match="type fixed"):
        iceberg_types.to_spark({"fields": [{"name": "x", "required": False, "type": "fixed[16]"}]})


def test_columns_become_wider_and_never_change() -> None:
    inner = StructType().add("x", IntegerType())
    old = StructType().add("n", IntegerType()).add("ratio", FloatType()).add("name", StringType()).add("o", inner)
    new_inner = StructType().add("x", LongType()).add("y", StringType())
    new = StructType().add("N", LongType()).add("ratio", DoubleType()).add("name", LongType()).add("o", new_inner)
    found = widened(old, new.add("more", StringType()))
    wanted = StructType().add("n", LongType()).add("ratio", DoubleType()).add("name", StringType()).add("o", new_inner)
    assert found == wanted.add("more", StringType())
    assert widened(found, old) == found
    assert takes(LongType(), IntegerType())
    assert not takes(IntegerType(), LongType())
    assert not takes(StringType(), LongType())


def test_a_recipe_is_kept_and_compared() -> None:
    recipe = RowRecipe("lines of logs (1)", "json", "`day` int", (("a", "b + 1"),), parse_fields(["day(at)"]))
    assert RowRecipe.of(recipe.as_text(), "t") == recipe
    recipe.require_same(recipe.at_directories(""), "t")
    with pytest.raises(InvalidRequest, match="t is partitioned by day\\(at\\), not nothing"):
        recipe.require_same(RowRecipe(recipe.read, "json", "", recipe.columns), "t")
    with pytest.raises(InvalidRequest, match="newer tierfs"):
        RowRecipe.of(recipe.as_text().replace('"v": 1', '"v": 2'), "t")
