"""Bringing back the rows of `entries` that a journal does not carry, from their copies in the bucket.

A ledger that a recovery or a replica knows from the journal has a cold chunk and no rows: nobody can read it until it
has them. Where the copy is missing or damaged, all of the ledger's object is read instead, if it is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import islice

from tierfs.background.segment_dump import ObjectFile
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.errors import DataLoss, NotFound
from tierfs.metadata import chains, directories, entries, entries_copy, keys, ledgers
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.ledger_records import MAX_RUN_ENTRIES, EntryRun, LedgerRecord
from tierfs.metadata.records import ObjectRecord, SegmentRecord
from tierfs.metadata.store import MetadataStore
from tierfs.metadata.tables import LEDGERS, OBJECTS
from tierfs.metadata.transaction import ReadTransaction, WriteTransaction, batches
from tierfs.names import printable
from tierfs.reading.entry_scan import scan
from tierfs.types import PayloadEncoding, SegmentId, SegmentKind, Tier

log = logging.getLogger(__name__)

_RUNS_TOGETHER = 64
"""Rows that one commit writes: some 10 ms."""

_MOST_EMPTY_ENTRIES = 1 << 30
"""Of a ledger without a byte: whoever can write to the bucket chose the number (a guess)."""

_LEDGERS_TOGETHER = 1000
"""Looked at in one snapshot."""

Write = Callable[[], AbstractContextManager[WriteTransaction]]
"""Opens a transaction that may write rows: another one in a replica."""


class EntryRows:
    """Rows of one store."""

    def __init__(self, metadata: MetadataStore, storage: ChunkStorage, write: Write) -> None:
        self._metadata = metadata
        self._storage = storage
        self._write = write

    def restore_all(self) -> list[str]:
        """Bring back the rows of every ledger that lacks them; returns what could not be, a line per ledger."""

        def ids(_: ReadTransaction, rows: list[tuple[bytes, LedgerRecord]]) -> list[SegmentId]:
            return [SegmentId(record.segment_id) for _, record in rows]

        some = batches(self._metadata.read, LEDGERS, _LEDGERS_TOGETHER, ids)
        return [line for segment_ids in some for line in self.restore(segment_ids)]

    def restore(self, segment_ids: Iterable[SegmentId]) -> list[str]:
        """As `restore_all`, of some segments; those that are no ledgers, or have all rows, are left alone.

        Raises what the storage raises, but for a copy that is not there.
        """
        failed = []
        for segment_id in segment_ids:
            with self._metadata.read() as txn:
                segment = directories.segment(txn, segment_id)
                if segment is None or segment.kind is not SegmentKind.LEDGER:
                    continue
                missing = first_missing(txn, segment)
                holders = [] if missing is None else list(_holders(txn, segment))
            if missing is None:
                continue
            try:
                self._restore(segment, holders)
            except (NotFound, DataLoss) as exc:
                with self._metadata.read() as txn:
                    name = directories.path_of(txn, segment.parent_id, segment.name)
                log.warning("entries of ledger %s: %s", name, exc)
                failed.append(f"ledger {printable(name)} cannot be read, its entries are not known: {exc}")
        return failed

    def prepare(self, entry: pb.JournalEntry) -> None:
        """Have the rows of what an entry of the journal is about to link, so that nobody opens a ledger without them.

        Idempotent. Raises what the storage raises, but for objects that are not there: `restore` tells of those.
        """
        for change in entry.changes:
            for message in change.cold_link.objects:
                if message.encoding and not self._has(message):
                    with suppress(NotFound, DataLoss):
                        self._put_those_of(OBJECTS.codec.from_message(message))

    def _has(self, message: pb.ObjectRecord) -> bool:
        with self._metadata.read() as txn:
            last = entries.last_run(txn, SegmentId(message.segment_id))
        return last is not None and last.payload_end >= message.payload_start + message.length

    def _restore(self, segment: SegmentRecord, holders: list[ObjectRecord]) -> None:
        if not holders:
            self._put_empty(segment)
        for holder in holders:
            self._put_those_of(holder)
        with self._metadata.read() as txn:
            missing = first_missing(txn, segment)
        if missing is not None:
            raise DataLoss(f"they end before the payload at {missing}")

    def _put_those_of(self, holder: ObjectRecord) -> None:
        """The rows of one object, from their copy, or found by reading it."""
        segment_id = SegmentId(holder.segment_id)
        try:
            self._put(segment_id, entries_copy.decode(self._copy(holder), holder.entries_name, segment_id))
        except (NotFound, DataLoss) as exc:
            if holder.foreign:
                raise DataLoss(f"{exc}; adopt it again") from exc
            if holder.encoding is not PayloadEncoding.PULSAR_BLOCK:
                raise
            log.info("%s, so %s is read", exc, holder.name)
            self._put(segment_id, scan(self._storage, holder))

    def _put(self, segment_id: SegmentId, runs: Iterator[EntryRun]) -> None:
        while some := list(islice(runs, _RUNS_TOGETHER)):
            with self._write() as txn:
                for run in some:
                    entries.put(txn, segment_id, run)

    def _copy(self, holder: ObjectRecord) -> ObjectFile:
        if not holder.entries_name:
            raise NotFound(f"there is no copy of the entries that {printable(holder.name)} holds")
        return ObjectFile(self._storage, self._storage.stat(holder.entries_name))

    def _put_empty(self, segment: SegmentRecord) -> None:
        """Entries without a byte need no object."""
        with self._metadata.read() as txn:
            count = ledgers.find(txn, segment.id).entries
        if count > _MOST_EMPTY_ENTRIES:
            raise DataLoss(f"{count} entries without a byte are more than a ledger can have")
        whole = EntryRun(lengths=(0,) * MAX_RUN_ENTRIES)
        runs = (replace(whole, first_entry_id=first) for first in range(0, count, MAX_RUN_ENTRIES))
        self._put(segment.id, (replace(run, lengths=run.lengths[: count - run.first_entry_id]) for run in runs))


def first_missing(txn: ReadTransaction, segment: SegmentRecord) -> int | None:
    """The first payload byte of a cold ledger that no run tells of; None when there is none."""
    last: EntryRun | None = entries.last_run(txn, segment.id)
    end = 0 if last is None else last.payload_end
    cold_end = max((chunk.end_offset for chunk in chains.chunks(txn, segment.id, Tier.COLD)), default=0)
    if end < cold_end:
        return end
    record = ledgers.find(txn, segment.id)
    has_none = last is None and record.entries > 0 and not record.bytes
    return 0 if has_none and txn.get(LEDGERS, keys.u64(segment.id)) is not None else None


def _holders(txn: ReadTransaction, segment: SegmentRecord) -> Iterator[ObjectRecord]:
    """The encoded objects of a ledger, each once; one copy may tell of several."""
    seen = set[str]()
    for chunk in chains.chunks(txn, segment.id, Tier.COLD):
        if chunk.object_id:
            holder = chains.object_of(txn, chunk)
            if holder.entries_name not in seen:
                seen.add(holder.entries_name)
                yield holder
