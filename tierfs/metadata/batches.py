"""Table `batches`: the committed versions of each application. Committing one of them again changes nothing.

A journal may end in the middle of a batch, as an entry has a size limit. So the first change of a batch names its
segments (BEGUN) and the last one marks it complete (COMMITTED); a recovery that finds only the first removes those
segments.

Versions of an application only increase. Rows older than KEPT_MS are therefore replaced by a watermark, at and below
which every version counts as committed: each commit trims some rows of its own application, so that a stream that runs
for years keeps one day of rows.
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
"""Individual versions are recorded for a day: 43,000 rows of 100 bytes at one commit every 2 s."""

_LOOKED_AT_PER_COMMIT = 20
"""Rows of writes without an application: each commit examines this many, wherever its hash leads, and drops old ones.
So about a twentieth of the rows are older than KEPT_MS, and no full scan is needed."""

_TRIMMED_PER_COMMIT = 100
"""Each commit adds one row and may trim more, so that the backlog of a busy day shrinks."""


def check(application: str, version: int) -> None:
    """Raise InvalidRequest unless a batch can have this application and version."""
    length_bytes = len(application.encode(errors="surrogatepass"))
    if not 0 < length_bytes <= MAX_APPLICATION_BYTES or not application.isprintable():
        raise InvalidRequest(
            f"txnAppId has {length_bytes} bytes or unprintable characters",
            remedy=f"use 1 to {MAX_APPLICATION_BYTES} bytes of printable text",
        )
    if not 0 <= version <= MAX_BATCH:
        raise InvalidRequest(f"txnVersion is {version}", remedy="use a number from 0 on, below 2^63")


def of_job(job: str) -> str:
    """Return the application of a write that names none: its one version is never written again."""
    return f"job {job}"


def key(application: str, version: int) -> bytes:
    """Return the key of a row: rows of one application are adjacent, in the order of their versions."""
    return _prefix(application) + tables.u64(version)


def key_of(message: pb.BatchRecord) -> bytes:
    """Return the key that a row has to have. Raises DataLoss for a damaged row."""
    record = BATCHES.codec.from_message(message)
    record.check()
    return key(record.application, record.number)


def is_committed(txn: ReadTransaction, application: str, version: int) -> bool:
    """Return whether a version was committed, or is not above the watermark of its application."""
    row = txn.get(BATCHES, key(application, version))
    if row is not None:
        return row.state is not BatchState.BEGUN
    first = next(_rows(txn, application), None)
    return first is not None and first.state is BatchState.WATERMARK and version <= first.number


def begun(txn: ReadTransaction) -> list[BatchRecord]:
    """Return the batches without an end in the journal: only after a recovery, and in a replica."""
    return [row for _, row in txn.scan(BATCHES) if row.state is BatchState.BEGUN]


def begin(txn: WriteTransaction, record: BatchRecord) -> None:
    """Journal which segments follow; the row is written by `commit`, in the same transaction."""
    _journal(txn, replace(record, state=BatchState.BEGUN))


def commit(txn: WriteTransaction, record: BatchRecord) -> None:
    """Write the row, journal that the batch is complete, and trim rows of the application."""
    committed = replace(record, state=BatchState.COMMITTED, segment_ids=(), committed_ms=txn.now_ms)
    txn.put(BATCHES, key(record.application, record.number), committed)
    _journal(txn, committed)
    _trim(txn, record.application)
    _drop_old_jobs(txn, record.job)


def drop(txn: WriteTransaction, record: BatchRecord) -> None:
    """Forget a batch."""
    txn.delete(BATCHES.name, key(record.application, record.number))
    _journal(txn, replace(record, state=BatchState.DROPPED, segment_ids=()))


def replay(txn: WriteTransaction, message: pb.BatchRecord) -> None:
    """Apply a change of the journal. Raises DataLoss."""
    record = BATCHES.codec.from_message(message)
    record.check()
    untrusted.check_times(record.committed_ms)
    row_key = key(record.application, record.number)
    if record.state is BatchState.DROPPED:
        txn.delete(BATCHES.name, row_key)
        return
    if record.state is BatchState.WATERMARK:
        _delete_up_to(txn, record)
    txn.put(BATCHES, row_key, record)


def state(txn: ReadTransaction) -> Iterator[pb.Change]:
    """Yield all rows as changes without sequence: the batches of a checkpoint."""
    for _, row in txn.scan(BATCHES):
        yield _change(row)


def _trim(txn: WriteTransaction, application: str) -> None:
    """Replace the oldest rows by a watermark, never the newest one. Depends only on stored rows and the transaction's
    time."""
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
    _journal(txn, mark)


def _drop_old_jobs(txn: WriteTransaction, job: str) -> None:
    before_ms = txn.now_ms - KEPT_MS
    rows = [row for _, row in islice(txn.scan(BATCHES, _prefix(job)), _LOOKED_AT_PER_COMMIT)]
    for row in rows:
        if row.application == of_job(row.job) and row.committed_ms <= before_ms:
            drop(txn, row)


def _delete_up_to(txn: WriteTransaction, mark: BatchRecord) -> None:
    for row in list(takewhile(lambda row: row.number <= mark.number, _rows(txn, mark.application))):
        txn.delete(BATCHES.name, key(row.application, row.number))


def _rows(txn: ReadTransaction, application: str) -> Iterator[BatchRecord]:
    """Yield the rows of an application, by version."""
    for _, row in txn.scan(BATCHES, prefix=_prefix(application)):
        yield row


def _prefix(application: str) -> bytes:
    return hashlib.sha256(application.encode()).digest()


def _journal(txn: WriteTransaction, record: BatchRecord) -> None:
    transaction.add(txn, _change(record))


def _change(record: BatchRecord) -> pb.Change:
    return pb.Change(batch=BATCHES.codec.to_message(record))  # type: ignore[arg-type]
