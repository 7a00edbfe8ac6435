"""Rows as protobuf messages, for checks that continue after damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tierfs.engine.metadata.tables import Table
from tierfs.engine.metadata.transaction import ReadTransaction

# A key and its message; None for a value that cannot be parsed.
MessageRow = tuple[bytes, Any]


def messages(
    txn: ReadTransaction, table: Table[Any], start: bytes = b"", *, prefix: bytes = b""
) -> Iterator[MessageRow]:
    """Yield rows in key order from the first key >= `start`, as long as keys begin with `prefix`."""
    parse = table.codec.parse_or_none
    for key, data in txn.scan_raw(table.name, start or prefix, prefix=prefix):
        yield key, parse(data)


def message(txn: ReadTransaction, table: Table[Any], key: bytes) -> Any | None:
    """Return the message under a key; None if missing or unparsable."""
    data = txn.get_raw(table.name, key)
    return None if data is None else table.codec.parse_or_none(data)
