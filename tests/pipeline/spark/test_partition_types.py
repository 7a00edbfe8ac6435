"""Types of directories' values, as Spark 4.3.0 inferred and read them by path: what it said is written down here."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql.types import DecimalType

from tierfs.pipeline.reader.line_format import CODECS, UNREAD_CODECS, LineFormat
from tierfs.pipeline.spark.partition_columns import converted, converter, inferred

NINES = {digits: "9" * digits for digits in (10, 19, 20, 27, 28, 29, 30, 37, 38, 39, 40)}

SPARK: dict[str, tuple[str, object]] = {
    **{NINES[digits]: (f"decimal({digits},0)", Decimal(NINES[digits])) for digits in (19, 20, 27, 28, 29, 30, 37, 38)},
    NINES[10]: ("bigint", 9_999_999_999),
    NINES[39]: ("double", 1e39),
    NINES[40]: ("double", 1e40),
    f"-{NINES[38]}": ("decimal(38,0)", Decimal(f"-{NINES[38]}")),
    f"+{NINES[30]}": ("decimal(30,0)", Decimal(NINES[30])),
    "0" * 40 + "1": ("int", 1),
    "1e3": ("decimal(4,0)", 1000),
    "1e30": ("decimal(31,0)", Decimal(10**30)),
    "1e38": ("double", 1e38),
    "1.0": ("double", 1.0),
    "1.": ("decimal(1,0)", 1),
    ".5": ("double", 0.5),
    "1d": ("double", 1.0),
    "1D": ("double", 1.0),
    "1f": ("double", 1.0),
    "Infinity": ("double", float("inf")),
    "inf": ("string", "inf"),
    "true": ("string", "true"),
    "null": ("string", "null"),
    " 5": ("double", 5.0),
    "5 ": ("double", 5.0),
    " 1.5": ("double", 1.5),
    "\u00a05": ("string", "\u00a05"),
    "5\u00a0": ("string", "5\u00a0"),
    "\u00a01.5": ("string", "\u00a01.5"),
    "\u20031.5": ("string", "\u20031.5"),
    "\u0085" + "1.5": ("string", "\u0085" + "1.5"),
    "\t1.5": ("string", "\t1.5"),
    "\x1f1.5": ("string", "\x1f1.5"),
    "2020-1-1": ("string", "2020-1-1"),
    "2020-13-01": ("string", "2020-13-01"),
    "20200101": ("int", 20_200_101),
    "2026-11-29": ("date", date(2026, 11, 29)),
    "0001-01-01": ("date", date(1, 1, 1)),
    "1582-10-10": ("date", date(1582, 10, 10)),
    "9999-12-31": ("date", date(9999, 12, 31)),
    "2026-11-29 10:00:00": ("timestamp", datetime(2026, 11, 29, 10, tzinfo=UTC)),
    "2026-11-29 10:00:00.5": ("timestamp", datetime(2026, 11, 29, 10, 0, 0, 500_000, tzinfo=UTC)),
    "1969-12-31 23:59:59.9": ("timestamp", datetime(1969, 12, 31, 23, 59, 59, 900_000, tzinfo=UTC)),
    "9999-12-31 23:59:59": ("timestamp", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    **{
        text: ("string", text)
        for text in (
            "2026-02-30",
            "1900-02-29",
            "2026-11",
            "2026-333",
            "2026-W48-7",
            "2026/11/29",
            "+2026-01-01",
            "12026-01-01",
            "2026-11-29 ",
            "2026-11-29T10:00:00",
            "2026-11-29T10:00:00Z",
            "2026-11-29 10:00",
            "2026-11-29 1:00:00",
            "2026-11-29 10:00:00.",
            "2026-11-29 10:00:00.50",
            "2026-11-29 10:00:00.123456",
            "2026-11-29 10:00:00Z",
            "2026-11-29 10:00:00+01:00",
            "2026-11-29 24:00:00",
            "2026-11-29 10:00:60",
        )
    },
}


@pytest.mark.parametrize("text", SPARK)
def test_a_value_has_the_type_that_spark_gives_it(text: str) -> None:
    kind = inferred([text])
    assert (kind.simpleString(), converted(converter(kind), "p", text, kind)) == SPARK[text]


@pytest.mark.parametrize(("digits", "scale"), [(28, 0), (29, 0), (38, 0), (38, 10), (38, 38)])
def test_a_decimal_of_a_schema_has_all_its_digits(digits: int, scale: int) -> None:
    kind, whole = DecimalType(digits, scale), "9" * (digits - scale)
    text = f"{whole or '0'}.{'9' * scale}" if scale else whole
    assert str(converter(kind)(text)) == text
    with pytest.raises(ValueError, match="9"):
        converter(kind)(f"9{text}" if whole else f"9{text[1:]}")


BY_PATH = {
    "gzip": ["gz", "GZ", "Gz", "gzip", "GZIP", "deflate", "DEFLATE", "Deflate"],
    "bz2": ["bz2", "BZ2", "Bz2"],
    "zstd": ["zst", "ZST", "Zst", "zstd", "ZSTD"],
    "lz4": ["lz4", "LZ4"],
    "snappy": ["snappy", "SNAPPY"],
    None: ["z", "Z", "gz.1", "tgz", "bzip2", "bz", "BZIP2", "zlib", "xz", "log"],
}


@pytest.mark.parametrize(("end", "codec"), [(end, codec) for codec, ends in BY_PATH.items() for end in ends])
def test_the_codec_of_a_name_is_that_of_the_path(end: str, codec: str | None) -> None:
    assert LineFormat(decompresses=True).codec_of(f"d.d/x.{end}") == codec
    assert LineFormat().codec_of(f"d.d/x.{end}") is None
    assert {*CODECS.values(), *UNREAD_CODECS.values()} == {each for each in BY_PATH if each}
