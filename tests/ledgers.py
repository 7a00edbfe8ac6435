"""Ledgers for tests: closed ones of given entries, their offload, and their bytes."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid4

from tests.engine.ledger import independent
from tests.stores import LOCATION, TestStore
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.types import ReadPriority
from tierfs.engine.journal.objects import read_small
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import directories, entries
from tierfs.engine.metadata.ledger_records import LedgerRecord
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.engine.segments.ledgers import make
from tierfs.reading.entries import EntrySplitter, placed_entries
from tierfs.reading.reader import StoreReader
from tierfs.reading.stream import copy_segment
from tierfs.tiering.ledgers.offload import LedgerOffloader
from tierfs.tiering.objects import ColdTier

ROOMY = {"chunk_bytes": "65536", "object_bytes": "65536"}
"""A policy whose chunks hold many small entries."""

BLOCK_BYTES = 1000


def new_ledger(
    store: TestStore, payloads: Iterable[bytes], managed_ledger: str = "topic", *, close: bool = True
) -> str:
    """Return the name of a ledger of these entries."""
    with store.metadata.write() as txn:
        name = make(txn, managed_ledger)
    writer = store.engine.open_ledger(name)
    held = list(payloads)
    for at in range(0, len(held), 500):
        writer.append_entries(held[at : at + 500])
    store.engine.close_writer(writer)
    if close:
        store.engine.seal(name)
    return name


def offloader(store: TestStore, block_bytes: int = BLOCK_BYTES) -> LedgerOffloader:
    """As a new process would make it."""
    publisher = Publisher(store.metadata, store.cold)
    tier = ColdTier(LOCATION, store.cold, publisher.require_recent_ownership, publisher.require_place)
    return LedgerOffloader(store.metadata, store.files, tier, block_bytes)


def offload(store: TestStore, name: str, *, block_bytes: int = BLOCK_BYTES, uuid: UUID | None = None) -> UUID:
    """Offload one ledger, and publish that; return the attempt."""
    uuid = uuid or uuid4()
    store.cold_work().publish()
    offloader(store, block_bytes).offload(store.segment(name).id, uuid)
    store.cold_work().publish()
    return uuid


def record(store: TestStore, name: str) -> LedgerRecord:
    """Return the record of a ledger."""
    with store.metadata.read() as txn:
        return entries.find(txn, directories.segment_by_name(txn, name).id)


def ledger_names(store: TestStore) -> list[str]:
    """Return objects of ledgers in the cold tier, the copies of entries left out."""
    return [found.name for found in store.cold.list("") if "-ledger-" in found.name]


def written(store: TestStore, name: str) -> list[bytes]:
    """Return the entries in a ledger's objects, by a decoder that shares nothing with tierfs."""
    known = record(store, name)
    key = f"{known.offload.uuid}-ledger-{known.ledger_id}"
    return independent.decode_ledger(read_small(store.cold, f"{key}-index"), read_small(store.cold, key))


def reader(store: TestStore) -> StoreReader:
    return StoreReader(store.metadata, store.files, lambda _: store.cold, ReadSettings(), NullMetrics())


def cold_bytes(store: TestStore, name: str, start: int | None = None, end: int | None = None) -> bytes:
    """Return payload bytes from the cold tier alone."""
    out = bytearray()
    copy_segment(reader(store), store.segment(name), start, end, ReadPriority.OFFLOADED_ONLY, out.extend)
    return bytes(out)


def cold_entries(store: TestStore, name: str, first: int = 0, end: int | None = None) -> list[bytes]:
    """Return entries [first, end) from the cold tier alone."""
    segment: SegmentRecord = store.segment(name)
    with store.metadata.read() as txn:
        end = entries.count(txn, segment.id) if end is None else end
    places = list(placed_entries(store.metadata, segment.id, first, end))
    found: list[bytes] = []
    splitter = EntrySplitter(iter(places), lambda _, payload: found.append(payload))
    if places:
        splitter.write(cold_bytes(store, name, places[0].range.start, places[-1].range.end))
    return found
