"""Files of a table that are written anew: without rows that were dropped, or several small ones as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tierfs.base.words.types import MIB
from tierfs.pipeline.spark.tables.followed_table import FollowedTable, RoundFile, TableFile
from tierfs.pipeline.spark.tables.partition_fields import PartitionField
from tierfs.pipeline.spark.tables.table_files import HadoopFiles, write_files

# As Spark's partitions: a file is one task of a later read.
FILE_BYTES = 128 * MIB

# Rewritten together, and so committed together: a kill loses at most this much work.
_STEP_BYTES = 8 * FILE_BYTES
_STEP_BINS = 64


def bins(files: Iterable[TableFile], least: int) -> list[list[TableFile]]:
    """Return small files of one partition that become one file each: `least` of them at least, up to FILE_BYTES. Pure.

    A file of more than half of that stays as it is, as does one whose rows are not those that a reader sees.
    """
    small = [each for each in files if each.is_exact and each.size_bytes < FILE_BYTES // 2]
    made = []
    for _, group in groupby(sorted(small, key=lambda each: (each.partition, each.path)), lambda each: each.partition):
        taken: list[TableFile] = []
        for each in group:
            if sum(other.size_bytes for other in taken) + each.size_bytes > FILE_BYTES:
                made.append(taken)
                taken = []
            taken.append(each)
        made.append(taken)
    return [each for each in made if len(each) >= least]


def steps(bins: Sequence[list[TableFile]]) -> Iterator[list[list[TableFile]]]:
    """Yield bins that are rewritten together. Pure."""
    step: list[list[TableFile]] = []
    size_bytes = 0
    for each in bins:
        step.append(each)
        size_bytes += sum(file.size_bytes for file in each)
        if size_bytes >= _STEP_BYTES or len(step) >= _STEP_BINS:
            yield step
            step, size_bytes = [], 0
    if step:
        yield step


def read_files(
    spark: SparkSession, table: FollowedTable, files: Sequence[TableFile], schema: StructType, path_in: str = ""
) -> DataFrame:
    """Return the rows in files, with columns of the table; with the file's path in a further one if it has a name."""
    reader = spark.read.schema(schema)
    if not table.keeps_fields:
        reader = reader.option("basePath", table.location)
    paths = [F.col("_metadata.file_path").alias(path_in)] if path_in else []
    columns = [F.col(f"`{name}`") for name in schema.names]
    return reader.parquet(*(each.path for each in files)).select(*columns, *paths)


def rewrite_files(
    spark: SparkSession,
    table: FollowedTable,
    step: Sequence[Sequence[TableFile]],
    schema: StructType,
    fields: Sequence[PartitionField],
    keep: Callable[[DataFrame], DataFrame],
) -> tuple[str, list[RoundFile]]:
    """Write the rows that `keep` returns of each bin to a new file of each bin; return their directory and them."""
    frames = [keep(read_files(spark, table, each, schema)).coalesce(1) for each in step]
    files = HadoopFiles(spark, table.staging())
    frame = reduce(DataFrame.union, frames)  # a task for each
    return files.root, write_files(frame, files, files.root, fields, keeps=table.keeps_fields)


def path_key(path: str) -> str:
    """Return a path as it can be compared; that of `_metadata.file_path` is a URL, with escapes."""
    return unquote(urlsplit(path).path)
