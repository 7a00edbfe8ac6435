"""Rows as protobuf messages, undecoded into records: for checks that must get through damaged ones.

A message costs a third of a record, and nothing is refused: what cannot be parsed comes as None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tierfs.metadata.tables import Table
from tierfs.metadata.transaction import ReadTransaction

MessageRow = tuple[bytes, Any]
"""A key and its message; None for a value that cannot be parsed."""


def messages(
    txn: ReadTransaction, table: Table[Any], start: bytes = b"", *, prefix: bytes = b""
) -> Iterator[MessageRow]:
    """Rows in key order from the first key >= `start`, as long as keys begin with `prefix`."""
    parse = table.codec.parse_or_none
    for key, data in txn.scan_raw(table.name, start or prefix, prefix=prefix):
        yield key, parse(data)


def message(txn: ReadTransaction, table: Table[Any], key: bytes) -> Any | None:
    """The message under a key; None when there is none, or none that can be parsed."""
    data = txn.get_raw(table.name, key)
    return None if data is None else table.codec.parse_or_none(data)
