"""Directories named `column=value`, as Spark and Hive write them. Pure.

A value is the directory's text with `%XX` decoded, or None for Hive's word for no value.
"""

from __future__ import annotations

import re
from functools import lru_cache

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_CODED = re.compile("%([0-9A-Fa-f]{2})")

# The column as it is written, and its value.
PartitionValue = tuple[str, str | None]


def partition_value(component: str) -> PartitionValue | None:
    """Return the column and value of a directory's name; None for a directory of another kind."""
    column, _, value = component.partition("=")
    if not column or not value:
        return None
    return _decoded(column), None if value == HIVE_NULL else _decoded(value)


@lru_cache(maxsize=4096)
def partition_values(directory: str) -> tuple[PartitionValue, ...]:
    """Return the columns and values in a directory's full name, the outermost first."""
    return tuple(filter(None, map(partition_value, directory.split("/"))))


def value_of(directory: str, column: str) -> str | None:
    """Return the value of a column, given in lower case; None also if the name has none. The innermost counts."""
    return next((value for name, value in reversed(partition_values(directory)) if name.lower() == column), None)


def _decoded(text: str) -> str:
    return _CODED.sub(lambda code: chr(int(code[1], 16)), text)
