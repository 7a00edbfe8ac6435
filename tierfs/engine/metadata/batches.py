"""Table `batches`: the committed versions of each application. Committing one of them again changes nothing.

A journal may end in the middle of a batch, as an entry has a size limit. So the first change of a batch names its
segments (BEGUN) and the last one marks it complete (COMMITTED); a recovery that finds only the first removes those
segments.

The set of versions is kept as ranges: versions may be committed in any order, as a scheduler repeats the run of a
failed day. Each commit folds the rows of its application that the journal names by then into ranges, so a stream that
counts its batches has one range and the row of its last commit. Past MAX_RANGES the lowest ranges are forgotten, and a
version there is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import Conflict, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.batch_records import MAX_APPLICATION_BYTES, MAX_BATCH, BatchRecord, BatchState
from tierfs.engine.metadata.tables import BATCHES
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# Rows of writes without an application are kept for a day: nobody can ask for them again.
KEPT_MS = 24 * 3600 * 1000

# Rows of writes without an application: each commit examines this many, wherever its hash leads, and drops old ones. So
# about a twentieth of the rows are older than KEPT_MS, and no full scan is needed.
_LOOKED_AT_PER_COMMIT = 20

# Ranges of one application: 27 years of days that are no neighbours. Each commit of it looks at them, some 20 ms.
MAX_RANGES = 10_000

_FORGOTTEN_AT_ONCE = 100

_JOB = re.compile(r"[0-9a-f]{32}")

_JOB_WORD = "job"


@dataclass(frozen=True, slots=True)
class Versions:
    """The committed versions of an application."""

    ranges: tuple[tuple[int, int], ...] = ()
    """First and last version of each, in order."""
    forgotten: int = 0
    """Versions below this one that are in no range are unknown."""

    @classmethod
    def union(cls, told: Sequence[Versions]) -> Versions:
        """Return what several markers tell: each lacks the later commits, and may know versions forgotten since."""
        ranges = _joined(each for versions in told for each in versions.ranges)
        return cls(tuple(ranges), max((versions.forgotten for versions in told), default=0))


def check(application: str, version: int) -> None:
    """Raise InvalidRequest unless a batch can have this application and version."""
    length_bytes = len(application.encode(errors="surrogatepass"))
    if not 0 < length_bytes <= MAX_APPLICATION_BYTES or not application.isprintable():
        raise InvalidRequest(
            f"txnAppId has {length_bytes} bytes or unprintable characters",
            remedy=f"use 1 to {MAX_APPLICATION_BYTES} bytes of printable text",
        )
    if not 0 <= version <= MAX_BATCH:
        raise InvalidRequest(f"txnVersion is {version}", remedy="use a number of at least 0, below 2^63")


def of_job(job: str) -> str:
    """Return the application of a write that names none: its one version is never written again."""
    return f"{_JOB_WORD} {job}"


def is_of_job(application: str) -> bool:
    """Return whether an application is that of a write that named none."""
    return application.startswith(f"{_JOB_WORD} ")


def key(application: str, version: int) -> bytes:
    """Return the key of a row: rows of one application are adjacent, in the order of their versions."""
    return _prefix(application) + tables.u64(version)


def key_of(message: pb.BatchRecord) -> bytes:
    """Return the key that a row has to have. Raises DataLoss for a damaged row."""
    record = BATCHES.codec.from_message(message)
    record.check()
    return key(record.application, record.number)


def is_committed(txn: ReadTransaction, application: str, version: int, writer: str = "") -> bool:
    """Return whether a version was committed.

    Raises Conflict for one that is too old to tell, and for the last version if another `writer` committed it.
    """
    row = next(_rows(txn, application, version), None)
    if row is None:
        return False
    if row.state is BatchState.WATERMARK:
        raise Conflict(
            f"version {version} of {printable(application)} is too old to determine whether it was committed: "
            f"versions up to {row.number} are forgotten",
            remedy="if its segments are missing, write it with another txnAppId",
        )
    if row.state is BatchState.RANGE:
        return row.first <= version
    if row.number != version or row.state is BatchState.BEGUN:
        return False
    if writer and row.writer and row.writer != writer:
        raise Conflict(
            f"batch {version} of {printable(application)} was committed by a query with another checkpoint",
            remedy="write with another txnAppId, or use the checkpoint that belongs to it",
        )
    return True


def versions(txn: ReadTransaction, application: str, last_sequence: int) -> Versions:
    """Return the versions whose commit has at most this sequence."""
    ranges: list[tuple[int, int]] = []
    forgotten = 0
    for row in _rows(txn, application):
        if row.state is BatchState.WATERMARK:
            forgotten = row.number + 1
        elif row.state is BatchState.RANGE:
            ranges.append((row.first, row.number))
        elif row.state is BatchState.COMMITTED and row.sequence <= last_sequence:
            ranges.append((row.number, row.number))
    return Versions(tuple(_joined(ranges)), forgotten)


def unfolded(txn: ReadTransaction, after_sequence: int = 0) -> list[BatchRecord]:
    """Return the rows of single commits with a higher sequence, those of the last commit of each application."""
    return [row for _, row in txn.scan(BATCHES) if row.state is BatchState.COMMITTED and row.sequence > after_sequence]


def newest_of(txn: ReadTransaction, application_hash: bytes, last_sequence: int) -> BatchRecord | None:
    """Return the last commit of an application up to a sequence; None if it is unknown."""
    rows = (row for _, row in txn.scan(BATCHES, prefix=application_hash) if row.state is BatchState.COMMITTED)
    named = (row for row in rows if row.sequence <= last_sequence)
    return max(named, key=lambda row: row.sequence, default=None)


def committed_by(journaled: Iterable[pb.Change]) -> Iterator[BatchRecord]:
    """Yield the batches of jobs that changes of the journal complete."""
    for change in journaled:
        if change.HasField("batch") and change.batch.state == BatchState.COMMITTED and change.batch.job:
            yield BATCHES.codec.from_message(change.batch)


def restore(txn: WriteTransaction, application: str, versions: Versions) -> None:
    """Write the versions of an application that has no rows, and journal them."""
    if versions.forgotten:
        _put(txn, _row(application, versions.forgotten - 1, BatchState.WATERMARK))
    for first, last in _joined(versions.ranges):
        if first >= versions.forgotten:
            _put(txn, replace(_row(application, last, BatchState.RANGE), first=first))


def begun(txn: ReadTransaction) -> list[BatchRecord]:
    """Return the batches without an end in the journal: only after a recovery, and in a replica."""
    return [row for _, row in txn.scan(BATCHES) if row.state is BatchState.BEGUN]


def begin(txn: WriteTransaction, record: BatchRecord) -> None:
    """Journal which segments follow; the row is written by `commit`, in the same transaction."""
    _journal(txn, replace(record, state=BatchState.BEGUN))


def commit(txn: WriteTransaction, record: BatchRecord) -> None:
    """Write the row, journal that the batch is complete, and fold older rows of the application."""
    _fold(txn, record.application)
    committed = replace(
        record,
        state=BatchState.COMMITTED,
        segment_ids=(),
        committed_ms=txn.now_ms,
        sequence=txn.store.next_outbox,
    )
    _put(txn, committed)
    _drop_old_jobs(txn, record.job)


def drop(txn: WriteTransaction, record: BatchRecord) -> None:
    """Forget a batch."""
    txn.delete(BATCHES.name, key(record.application, record.number))
    _journal(txn, replace(record, state=BatchState.DROPPED, segment_ids=()))


def replay(txn: WriteTransaction, message: pb.BatchRecord) -> None:
    """Apply a change of the journal. Raises DataLoss."""
    from tierfs.engine.metadata import untrusted  # `tierfs status` reads markers of batches, and replays nothing

    record = BATCHES.codec.from_message(message)
    record.check()
    untrusted.check_times(record.committed_ms)
    untrusted.require(record.sequence <= untrusted.MAX_ID, "a counter overflows", record.sequence)
    untrusted.require(
        not record.job or _JOB.fullmatch(record.job) is not None, "a batch of an impossible job", record.job[:40]
    )
    row_key = key(record.application, record.number)
    if record.state is BatchState.DROPPED:
        txn.delete(BATCHES.name, row_key)
        return
    _make_room(txn, record)
    txn.put(BATCHES, row_key, record)


def state(txn: ReadTransaction) -> Iterator[pb.Change]:
    """Yield all rows as changes without sequence: the batches of a checkpoint."""
    for _, row in txn.scan(BATCHES):
        yield _change(row)


def _fold(txn: WriteTransaction, application: str) -> None:
    """Fold the rows of single commits into ranges. Not those that no journal names yet: a recovery marks such jobs by
    their rows (journal/batch_markers.py)."""
    published = txn.store.journal.published_sequence
    rows = list(_rows(txn, application))
    grown = 0
    for row in rows:
        if row.state is BatchState.COMMITTED and row.sequence <= published:
            grown += _fold_one(txn, row)
    if len(rows) + grown > MAX_RANGES:
        _forget_lowest(txn, application)


def _fold_one(txn: WriteTransaction, row: BatchRecord) -> int:
    """Make a range of a single commit, joined with those beside it; return how many rows there are more."""
    below = txn.get(BATCHES, key(row.application, row.number - 1)) if row.number else None
    above = next(_rows(txn, row.application, row.number + 1), None) if row.number < MAX_BATCH else None
    first, last, rows = row.number, row.number, 0
    if below is not None and below.state is BatchState.RANGE:
        first, rows = below.first, rows - 1
    if above is not None and above.state is BatchState.RANGE and above.first == row.number + 1:
        last, rows = above.number, rows - 1
    _put(txn, replace(_row(row.application, last, BatchState.RANGE), first=first))
    return rows


def _forget_lowest(txn: WriteTransaction, application: str) -> None:
    known = (BatchState.RANGE, BatchState.WATERMARK)
    lowest = takewhile(lambda row: row.state in known, islice(_rows(txn, application), _FORGOTTEN_AT_ONCE))
    for last in list(lowest)[-1:]:
        _put(txn, _row(application, last.number, BatchState.WATERMARK))


def _put(txn: WriteTransaction, record: BatchRecord) -> None:
    """Write a row in place of those that it covers, and journal it."""
    _make_room(txn, record)
    txn.put(BATCHES, key(record.application, record.number), record)
    _journal(txn, record)


def _make_room(txn: WriteTransaction, record: BatchRecord) -> None:
    """Delete the rows that a range or a watermark covers."""
    if record.state not in (BatchState.RANGE, BatchState.WATERMARK):
        return
    first = 0 if record.state is BatchState.WATERMARK else record.first
    covered = takewhile(lambda row: row.number <= record.number, _rows(txn, record.application, first))
    for row in list(covered):
        txn.delete(BATCHES.name, key(row.application, row.number))


def _row(application: str, number: int, state: BatchState) -> BatchRecord:
    return BatchRecord(application=application, batch=str(number), state=state)


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ranges in order, those that touch or overlap as one."""
    held: tuple[int, int] | None = None
    for first, last in sorted(ranges):
        if held is not None and first <= held[1] + 1:
            held = held[0], max(held[1], last)
            continue
        if held is not None:
            yield held
        held = first, last
    if held is not None:
        yield held


def _drop_old_jobs(txn: WriteTransaction, job: str) -> None:
    before_ms = txn.now_ms - KEPT_MS
    rows = [row for _, row in islice(txn.scan(BATCHES, _prefix(job)), _LOOKED_AT_PER_COMMIT)]
    for row in rows:
        if row.application == of_job(row.job) and row.committed_ms <= before_ms:
            drop(txn, row)


def _rows(txn: ReadTransaction, application: str, at_least: int = 0) -> Iterator[BatchRecord]:
    """Yield the rows of an application from one that ends at a version on, by version."""
    for _, row in txn.scan(BATCHES, key(application, at_least), prefix=_prefix(application)):
        yield row


def _prefix(application: str) -> bytes:
    return hashlib.sha256(application.encode()).digest()


def _journal(txn: WriteTransaction, record: BatchRecord) -> None:
    txn.add_to_outbox(_change(record).SerializeToString(deterministic=True))


def _change(record: BatchRecord) -> pb.Change:
    return pb.Change(batch=BATCHES.codec.to_message(record))  # type: ignore[arg-type]
