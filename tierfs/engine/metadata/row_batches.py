"""Work on all rows of a table, some of them in each of several transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import TypeVar

from tierfs.engine.metadata.records import Record
from tierfs.engine.metadata.tables import Table
from tierfs.engine.metadata.transaction import ReadTransaction

R = TypeVar("R", bound=Record)
Txn = TypeVar("Txn", bound=ReadTransaction)
Result = TypeVar("Result")


def batches(
    begin: Callable[[], AbstractContextManager[Txn]],
    table: Table[R],
    most: int,
    work: Callable[[Txn, list[tuple[bytes, R]]], Result],
) -> Iterator[Result]:
    """Apply `work` to all rows of a table in key order, at most `most` rows in each of several transactions.

    A result is yielded after its transaction has ended. An empty table has one transaction, without rows.
    """

    def decoded(txn: Txn, rows: list[tuple[bytes, bytes]]) -> Result:
        return work(txn, [(key, table.codec.decode(data)) for key, data in rows])

    return raw_batches(begin, table.name, most, decoded)


def raw_batches(
    begin: Callable[[], AbstractContextManager[Txn]],
    name: bytes,
    most: int,
    work: Callable[[Txn, list[tuple[bytes, bytes]]], Result],
) -> Iterator[Result]:
    """Do as `batches`, with encoded rows: to decode each would take longer than the work on most."""
    start = b""
    while True:
        with begin() as txn:
            rows = list(islice(txn.scan_raw(name, start), most))
            result = work(txn, rows)
        yield result
        if len(rows) < most:
            return
        start = rows[-1][0] + b"\0"
