"""EntryRows: the rows of a store's ledgers, restored from their copies.

The journal does not carry the rows: a ledger that a recovery or a replica learns from it has a cold chunk and no rows,
and cannot be read until they are restored. If the copy is missing or damaged, all of the ledger's object is read
instead, if it is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import chain, islice

from tierfs.base.bytes.checksum import twice
from tierfs.base.bytes.progress import Meter, OnProgress, unseen
from tierfs.base.words.errors import Archived, DataLoss, NotFound, TierfsError
from tierfs.base.words.names import as_word, printable
from tierfs.base.words.types import PayloadEncoding, SegmentId, SegmentKind, Tier
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.sequential_read import ObjectFile
from tierfs.engine.metadata import chains, directories, entries, entries_object
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.ledger_records import EntryRun, LedgerRecord
from tierfs.engine.metadata.records import ObjectRecord, SegmentRecord
from tierfs.engine.metadata.row_batches import batches
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import LEDGERS, OBJECTS
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction
from tierfs.reading.entry_scan import scan

log = logging.getLogger(__name__)

# Rows that one commit writes: some 10 ms.
_RUNS_TOGETHER = 64

# Ledgers per snapshot.
_LEDGERS_TOGETHER = 1000

# Opens a transaction that may write rows; a replica has its own kind.
Write = Callable[[], AbstractContextManager[WriteTransaction]]


class EntryRows:
    """The rows of a store's ledgers, restored from their copies."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, write: Write) -> None:
        self._metadata = metadata
        self._storage = storage
        self._write = write

    def restore_all(self, report: OnProgress = unseen) -> list[str]:
        """Restore the rows of every ledger that lacks them; return a line per ledger that failed."""
        with self._metadata.read() as txn:
            meter = Meter(report, total_items=txn.count(LEDGERS.name), noun="ledger")

        def ids(_: ReadTransaction, rows: list[tuple[bytes, LedgerRecord]]) -> list[SegmentId]:
            return [SegmentId(record.segment_id) for _, record in rows]

        some = batches(self._metadata.read, LEDGERS, _LEDGERS_TOGETHER, ids)
        return self.restore(meter.each(chain.from_iterable(some), "restoring rows of entries"))

    def restore(self, segment_ids: Iterable[SegmentId]) -> list[str]:
        """Restore the rows of some segments, as `restore_all`; skip those that are not ledgers or have all rows.

        Raises storage errors, except for a missing copy, and for one that must be thawed: nothing else waits for that.
        """
        failed = []
        for segment_id in segment_ids:
            with self._metadata.read() as txn:
                segment = directories.segment(txn, segment_id)
                if segment is None or segment.kind is not SegmentKind.LEDGER:
                    continue
                missing = first_missing(txn, segment)
                records = [] if missing is None else list(_records_with_copies(txn, segment))
            if missing is None:
                continue
            try:
                self._restore(segment, records)
            except (NotFound, DataLoss, Archived) as exc:
                with self._metadata.read() as txn:
                    name = directories.path_of(txn, segment.parent_id, segment.name)
                log.warning("entries of ledger %s: %s", name, exc)
                failed.append(f"ledger {printable(name)} cannot be read, its entries are unknown: {_told(exc, name)}")
        return failed

    def prepare(self, entry: pb.JournalEntry) -> None:
        """Restore the rows of the objects that a journal entry will link, so that no ledger is opened without them.

        Idempotent. Raises storage errors, except for missing and archived objects: `restore` reports those.
        """
        for change in entry.changes:
            for message in change.cold_link.objects:
                if message.encoding and message.segment_id and not self._has(message):
                    with suppress(NotFound, DataLoss, Archived):
                        self._put_those_of(OBJECTS.codec.from_message(message))

    def _has(self, message: pb.ObjectRecord) -> bool:
        with self._metadata.read() as txn:
            last = entries.last_run(txn, SegmentId(message.segment_id))
        return last is not None and last.payload_end >= message.payload_start + message.length

    def _restore(self, segment: SegmentRecord, records: list[ObjectRecord]) -> None:
        for record in records:
            self._put_those_of(record)
        with self._metadata.read() as txn:
            missing, count = first_missing(txn, segment), entries.find(txn, segment.id).entries
        if missing is not None and count > entries.MOST_EMPTY_ENTRIES and not records:
            raise DataLoss(f"{count} empty entries exceed the limit of a ledger")
        if missing is not None:
            raise DataLoss(f"entry index ends before payload offset {missing}")

    def _put_those_of(self, record: ObjectRecord) -> None:
        """Write the rows of one object, from their copy, or from the object itself."""
        segment_id = SegmentId(record.segment_id)
        try:
            self._put(segment_id, entries_object.decode(self._copy(record), record.entries_name, segment_id))
        except (NotFound, DataLoss, Archived) as exc:
            if record.foreign and not isinstance(exc, Archived):
                raise DataLoss(f"{exc}; adopt it again") from exc
            if record.foreign:
                raise
            if record.encoding is not PayloadEncoding.PULSAR_BLOCK:
                raise
            log.info("%s; reading %s instead", exc, record.name)
            twice(lambda: self._put(segment_id, scan(self._storage, record)))

    def _put(self, segment_id: SegmentId, runs: Iterator[EntryRun]) -> None:
        while some := list(islice(runs, _RUNS_TOGETHER)):
            with self._write() as txn:
                for run in some:
                    entries.put(txn, segment_id, run)

    def _copy(self, record: ObjectRecord) -> ObjectFile:
        if not record.entries_name:
            raise NotFound(f"no copy of the entries in {printable(record.name)}")
        return ObjectFile(self._storage, self._storage.stat(record.entries_name))


def _told(error: TierfsError, name: str) -> str:
    """Return an error of a ledger, with the way to one that must be thawed first."""
    way = f"; first tierfs thaw --wait {as_word(name)}, then tierfs check --repair"
    return f"{error}{way if isinstance(error, Archived) else ''}"


def first_missing(txn: ReadTransaction, segment: SegmentRecord) -> int | None:
    """Return the first payload byte of a cold ledger that no run covers; None when all are covered."""
    last: EntryRun | None = entries.last_run(txn, segment.id)
    end = 0 if last is None else last.payload_end
    cold_end = max((chunk.end_offset for chunk in chains.chunks(txn, segment.id, Tier.COLD)), default=0)
    if end < cold_end:
        return end
    record = entries.find(txn, segment.id)
    return 0 if last is None and record.entries and not record.bytes else None


def _records_with_copies(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ObjectRecord]:
    """Yield the encoded objects of a ledger, one per copy of rows; a copy may cover several objects."""
    seen = set[str]()
    for chunk in chains.chunks(txn, segment.id, Tier.COLD):
        if chunk.object_id:
            record = chains.object_of(txn, chunk)
            if record.entries_name not in seen:
                seen.add(record.entries_name)
                yield record
