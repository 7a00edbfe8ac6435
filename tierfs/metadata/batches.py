"""Table `batches`: which versions of which application were committed. A repeat of one of them changes nothing.

A journal may end in the middle of a batch, as an entry has a limit. So the first change of a batch names its segments
(BEGUN) and the last one says that all are there (COMMITTED); a recovery that finds only the first takes them away.

Versions of an application only go up. Rows older than KEPT_MS therefore make way for one that says up to where all
counts as committed: each commit trims some of its own application, so that a stream for years keeps a day of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, takewhile

from tierfs.errors import InvalidRequest
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata import tables, transaction, untrusted
from tierfs.metadata.ledger_and_batch_records import MAX_APPLICATION_BYTES, MAX_BATCH, BatchRecord, BatchState
from tierfs.metadata.tables import BATCHES
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction

KEPT_MS = 24 * 3600 * 1000
"""A version is told apart from those around it for a day: 43,000 rows of 100 bytes where one comes every 2 s."""

_LOOKED_AT_PER_COMMIT = 20
"""Rows of writes without an application: each commit looks at so many, wherever its hash leads, and drops old ones. So
about a twentieth of the rows are older than KEPT_MS, without anything that goes through all."""

_TRIMMED_PER_COMMIT = 100
"""Each commit adds one row and may trim more, so that rows of a busy day go."""


def check(application: str, version: int) -> None:
    """Raise InvalidRequest unless a batch can have these."""
    length_bytes = len(application.encode(errors="surrogatepass"))
    if not 0 < length_bytes <= MAX_APPLICATION_BYTES or not application.isprintable():
        raise InvalidRequest(
            f"txnAppId has {length_bytes} bytes or unprintable characters",
            remedy=f"use 1 to {MAX_APPLICATION_BYTES} bytes of printable text",
        )
    if not 0 <= version <= MAX_BATCH:
        raise InvalidRequest(f"txnVersion is {version}", remedy="use a number from 0 on, below 2^63")


def of_job(job: str) -> str:
    """The application of a write that names none: its one version is never written again."""
    return f"job {job}"


def key(application: str, version: int) -> bytes:
    """Rows of one application lie together, in the order of their versions."""
    return _prefix(application) + tables.u64(version)


def key_of(message: pb.BatchRecord) -> bytes:
    """The key that a row has to have. Raises DataLoss for a row that is damaged."""
    record = BATCHES.codec.from_message(message)
    record.check()
    return key(record.application, record.number)


def is_committed(txn: ReadTransaction, application: str, version: int) -> bool:
    """Whether a version was committed, or lies below the watermark of its application."""
    row = txn.get(BATCHES, key(application, version))
    if row is not None:
        return row.state is not BatchState.BEGUN
    first = next(_rows(txn, application), None)
    return first is not None and first.state is BatchState.WATERMARK and version <= first.number


def begun(txn: ReadTransaction) -> list[BatchRecord]:
    """Batches of which the journal told no end: only right after a recovery, and in a replica."""
    return [row for _, row in txn.scan(BATCHES) if row.state is BatchState.BEGUN]


def begin(txn: WriteTransaction, record: BatchRecord) -> None:
    """Tell the journal which segments follow; the row is written by `commit`, in the same transaction."""
    _tell(txn, replace(record, state=BatchState.BEGUN))


def commit(txn: WriteTransaction, record: BatchRecord) -> None:
    """Write the row, tell the journal that all of the batch is there, and trim rows of the application."""
    committed = replace(record, state=BatchState.COMMITTED, segment_ids=(), committed_ms=txn.now_ms)
    txn.put(BATCHES, key(record.application, record.number), committed)
    _tell(txn, committed)
    _trim(txn, record.application)
    _drop_old_jobs(txn, record.job)


def drop(txn: WriteTransaction, record: BatchRecord) -> None:
    """Forget a batch."""
    txn.delete(BATCHES.name, key(record.application, record.number))
    _tell(txn, replace(record, state=BatchState.DROPPED, segment_ids=()))


def replay(txn: WriteTransaction, message: pb.BatchRecord) -> None:
    """Apply a change of the journal. Raises DataLoss."""
    record = BATCHES.codec.from_message(message)
    record.check()
    untrusted.check_times(record.committed_ms)
    at = key(record.application, record.number)
    if record.state is BatchState.DROPPED:
        txn.delete(BATCHES.name, at)
        return
    if record.state is BatchState.WATERMARK:
        _delete_up_to(txn, record)
    txn.put(BATCHES, at, record)


def state(txn: ReadTransaction) -> Iterator[pb.Change]:
    """All rows as changes without sequence: what a checkpoint holds of batches."""
    for _, row in txn.scan(BATCHES):
        yield _change(row)


def _trim(txn: WriteTransaction, application: str) -> None:
    """Put a watermark in place of the oldest rows, never of the newest one. Deterministic by what is stored."""
    oldest = list(islice(_rows(txn, application), _TRIMMED_PER_COMMIT + 1))
    before_ms = txn.now_ms - KEPT_MS
    last: BatchRecord | None = None
    for row in oldest[:-1]:
        if row.state is BatchState.BEGUN or row.committed_ms > before_ms:
            break
        last = row
    if last is None or last.state is BatchState.WATERMARK:
        return
    mark = replace(last, state=BatchState.WATERMARK, job="")
    _delete_up_to(txn, mark)
    txn.put(BATCHES, key(application, mark.number), mark)
    _tell(txn, mark)


def _drop_old_jobs(txn: WriteTransaction, job: str) -> None:
    before_ms = txn.now_ms - KEPT_MS
    found = [row for _, row in islice(txn.scan(BATCHES, _prefix(job)), _LOOKED_AT_PER_COMMIT)]
    for row in found:
        if row.application == of_job(row.job) and row.committed_ms <= before_ms:
            drop(txn, row)


def _delete_up_to(txn: WriteTransaction, mark: BatchRecord) -> None:
    for row in list(takewhile(lambda row: row.number <= mark.number, _rows(txn, mark.application))):
        txn.delete(BATCHES.name, key(row.application, row.number))


def _rows(txn: ReadTransaction, application: str) -> Iterator[BatchRecord]:
    """Rows of an application, by version."""
    for _, row in txn.scan(BATCHES, prefix=_prefix(application)):
        yield row


def _prefix(application: str) -> bytes:
    return hashlib.sha256(application.encode()).digest()


def _tell(txn: WriteTransaction, record: BatchRecord) -> None:
    transaction.add(txn, _change(record))


def _change(record: BatchRecord) -> pb.Change:
    return pb.Change(batch=BATCHES.codec.to_message(record))  # type: ignore[arg-type]
