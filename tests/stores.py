"""Stores for tests: small chunks, a clock that stands still, a cold tier in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.doubles.manual_clock import ManualClock
from tierfs.base.bytes.progress import Progress
from tierfs.base.options.config import AckSettings, OffloadSettings, WriteSettings
from tierfs.base.system.clock import Clock
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.system.store_paths import StorePaths
from tierfs.base.words.types import ROOT_DIRECTORY, Ack, LocationId, PayloadEncoding, SegmentKind, Tier
from tierfs.engine.chunkstore.bounded import BoundedStorage
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import chains, changes, directories, policies, tables
from tierfs.engine.metadata.layout import Layout, load
from tierfs.engine.metadata.records import LocationRecord, SegmentRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.tables import GARBAGE, LOCATIONS
from tierfs.engine.segments import create
from tierfs.engine.segments.active_chunk import ChunkDescriptors
from tierfs.engine.segments.engine import Engine
from tierfs.reading.plain_bytes import PlainBytes, StoreRows
from tierfs.tiering.consolidate_command import ConsolidateReport
from tierfs.tiering.evict_command import EvictReport
from tierfs.tiering.garbage.clocks import ClockCheck
from tierfs.tiering.garbage.collect import Collected, Collector
from tierfs.tiering.objects import ColdTier
from tierfs.tiering.offload_command import OffloadReport
from tierfs.tiering.packs.append_pool import AppendPool
from tierfs.upkeep.holder.perform import holding
from tierfs.upkeep.holder.work import ColdWork

LOCATION = LocationId(1)
# Where the cold tier of a TestStore is.
IN_MEMORY = Place(LocationRecord(id=LOCATION, url="memory:"))
ALL_CHUNKS = 1 << 30
# Appends that the cold tier acknowledges wait for no others; of their deadline the pauses pass at once, see Pauses.
AT_ONCE = AckSettings(delay_s=0, deadline_s=60)


class Pauses:
    """The clock of deadlines: pauses pass at once, and nothing else takes time."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def monotonic_s(self) -> float:
        """Return how long all pauses were."""
        return self._passed_s

    def sleep(self, pause_s: float) -> None:
        """Let a pause pass."""
        self._passed_s += pause_s


class KeptOpen(Wrapped):
    """A storage that outlives its users."""

    def close(self) -> None:
        """Leave it open."""


@dataclass(slots=True)
class TestStore:
    """One store, opened piece by piece."""

    __test__ = False

    path: Path
    clock: Clock
    metadata: MetadataStore
    files: ChunkFiles
    cold: ChunkStorage
    settings: OffloadSettings
    ack: AckSettings = AT_ONCE
    server_time_ms: int | None = None
    """Time of a cold tier with a clock."""
    elsewhere: ChunkStorage = field(default_factory=MemoryStorage)
    """Any other place for the cold tier."""
    places: dict[str, ChunkStorage] = field(default_factory=dict)
    """Places that have an address, by their URL."""
    pauses: Pauses = field(default_factory=Pauses)
    """Of the appends that the cold tier acknowledges."""
    in_class: Callable[[str], ChunkStorage] | None = None
    """Connects to the cold tier for new objects of a storage class, where it has classes."""
    alive: bool = True
    """False between the death of its process and the next one's start."""
    paths: StorePaths = field(init=False)
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.paths = StorePaths(self.path)
        self.places.setdefault("memory:", self.cold)
        self.engine = self.another_engine()
        self.paths.locks.mkdir(parents=True, exist_ok=True)

    def holding(self) -> AbstractContextManager[ColdWork]:
        """Cold work inside a command that finds no holder."""
        return holding(self, "a test")

    def cold_work(self, what: str = "a test") -> ColdWork:
        """Return the cold work of the holder, as a new process would make it."""
        publisher, tier = self.cold_tier()
        return ColdWork(
            engine=self.engine,
            collector=Collector(self.metadata, self.files, lambda _: self.cold, publisher.require_ownership),
            clocks=ClockCheck(self.metadata, self.clock, lambda: self.server_time_ms),
            settings=self.settings,
            ballast_path=self.path / "ballast",
            metrics=NullMetrics(),
            cold=tier,
            publisher=publisher,
            connect=lambda place: KeptOpen(self.places.get(place.url, self.elsewhere)),
            in_class=self.in_class or (lambda _: self.cold),
        )

    def cold_tier(self) -> tuple[Publisher, ColdTier]:
        """Return the cold tier, as a process connects to it."""
        cold = BoundedStorage(self.cold)
        publisher = Publisher(self.metadata, cold)
        return publisher, ColdTier(LOCATION, cold, publisher.require_recent_ownership, publisher.require_place)

    def append(self, name: str, *parts: bytes, seal: bool = False, ack: Ack | None = None) -> None:
        """Append each part on its own, then close the writer."""
        writer = self.engine.open_writer(name, ack=ack)
        try:
            for part in parts:
                writer.append(part)
        finally:
            self.engine.close_writer(writer)
        if seal:
            self.engine.seal(name)

    def offload(self, path: str = "") -> OffloadReport:
        """Offload below a path."""
        with self.holding() as work:
            return work.offload(path, quiet)

    def consolidate(self, path: str = "") -> ConsolidateReport:
        """Consolidate below a path."""
        with self.holding() as work:
            return work.consolidate(path, dry_run=False, report=quiet)

    def evict(self, path: str = "", *, force: bool = False) -> EvictReport:
        """Evict below a path."""
        with self.holding() as work:
            return work.evict(path, force=force, dry_run=False, report=quiet)

    def collect(self, *, grace_s: int = 0) -> Collected:
        """Delete garbage and orphans, as `gc --delete` does."""
        with self.holding() as work:
            return work.collect_all(grace_s=grace_s)

    def settle(self) -> Collected:
        """Publish what is queued and delete what is due."""
        with self.holding() as work:
            work.publish()
            return work.collect()

    def segment(self, name: str) -> SegmentRecord:
        """Return the segment's record."""
        with self.metadata.read() as txn:
            return directories.segment_by_name(txn, name)

    def layout(self, name: str) -> Layout:
        """Return the segment's whole layout, however many windows readers have of it."""
        with self.metadata.read() as txn:
            return load(txn, directories.segment_by_name(txn, name), 0, ALL_CHUNKS)

    def read(self, name: str, tier: Tier | None = None) -> bytes:
        """Return the segment's bytes, straight from the files and objects; one tier's only if one is named.

        Of a ledger it is stored bytes: a replica has no rows that would place its payloads.
        """
        with self.metadata.read() as txn:
            segment = directories.segment_by_name(txn, name)
            placed = [
                (chunk, chains.object_of(txn, chunk), where)
                for where in (Tier if tier is None else (tier,))
                for chunk in chains.chunks(txn, segment.id, where)
                if not chunk.lost
            ]
        out, plain = bytearray(segment.length), PlainBytes(StoreRows(self.metadata))
        for chunk, holder, where in placed:
            buffer = bytearray(chunk.length)
            if where is Tier.LOCAL:
                data = (self.files.root / holder.name).read_bytes()
                buffer[:] = data[chunk.object_offset : chunk.object_offset + chunk.length]
            elif holder.encoding is PayloadEncoding.ZSTD_FRAMES:
                plain.read_into(self.cold, holder, chunk.object_offset, memoryview(buffer), None, None)
            else:
                self.cold.read_into(holder.name, chunk.object_offset, memoryview(buffer))
            out[chunk.start_offset : chunk.end_offset] = buffer
        return bytes(out)

    def reopen(self) -> None:
        """Continue as another process after a crash would: no lock, no writer, no memory of before."""
        self.engine.locks.close()
        self.engine = self.another_engine()

    def another_engine(self) -> Engine:
        """The engine that another process would have; close it."""
        writers = self.path / "writers"
        return Engine(self.metadata, self.files, writers, self.clock, WriteSettings(), self._pool)

    def _pool(self, descriptors: ChunkDescriptors) -> AppendPool:
        pauses = self.pauses
        return AppendPool(self.metadata, descriptors, self.ack, self.cold_tier, clock=pauses, sleep=pauses.sleep)

    @classmethod
    def around(cls, path: Path, metadata: MetadataStore, cold: ChunkStorage, settings: OffloadSettings) -> TestStore:
        """Make a store of metadata that are there, without chunk files."""
        files, clock = ChunkFiles.create(path / "chunks"), metadata.clock
        return cls(path, clock, metadata, files, cold, settings)

    @classmethod
    def opened(cls, path: Path, cold: ChunkStorage, clock: Clock, settings: OffloadSettings) -> TestStore:
        """Open a store that is there."""
        metadata, files = MetadataStore(path / "metadata", clock), ChunkFiles(path / "chunks")
        return cls(path, clock, metadata, files, cold, settings)

    def kill(self) -> None:
        """End as a killed process does: nothing is finished, marked or tidied up; locks and descriptors go."""
        descriptors = self.engine._tools.descriptors
        for chunk in descriptors._open.values():
            os.close(chunk.fd)
        descriptors._open.clear()
        for commits in self.engine._commits.values():
            if commits._pool is not None:
                commits._pool.close()
        self.engine.locks.close()
        self.files.close()
        self.metadata.close()
        self.alive = False

    def start(self) -> None:
        """Open what was closed or killed, as the next process does."""
        self.metadata = MetadataStore(self.path / "metadata", self.clock)
        self.files = ChunkFiles(self.path / "chunks")
        self.engine = self.another_engine()
        self.alive = True

    def close(self) -> None:
        """Release everything; a killed process has nothing left, and its descriptors' numbers are those of others."""
        if self.alive:
            self.engine.close()
            self.files.close()
            self.metadata.close()


def waiting_objects(store: TestStore) -> int:
    """Return how many cold objects wait to be deleted."""
    with store.metadata.read() as txn:
        return sum(row.tier is Tier.COLD for _, row in txn.scan(GARBAGE))


def create_ledger(metadata: MetadataStore, name: str) -> None:
    """Create an empty ledger: a segment of numbered entries."""
    with metadata.write() as txn:
        create.create(txn, name, SegmentKind.LEDGER)


def quiet(_: Progress) -> None:
    """Ignore a progress report."""


@contextmanager
def open_test_store(
    path: Path,
    *,
    policy: Mapping[str, str] | None = None,
    cold: ChunkStorage | None = None,
    settings: OffloadSettings | None = None,
    clock: Clock | None = None,
    ack: AckSettings | None = None,
) -> Iterator[TestStore]:
    """A new store in `path` with 4-byte chunks and 8-byte objects unless `policy` says otherwise."""
    clock = clock or ManualClock()
    path.mkdir(parents=True, exist_ok=True)
    metadata = MetadataStore.create(path / "metadata", clock)
    files = ChunkFiles.create(path / "chunks")
    with metadata.write() as txn:
        changes.owner_begins(txn, "test")
        txn.put(LOCATIONS, tables.u32(LOCATION), IN_MEMORY.record)
        txn.update_store(cold_location_id=LOCATION)
        policies.put(txn, ROOT_DIRECTORY, policy or {"chunk_bytes": "4", "object_bytes": "8"})
    store = TestStore(
        path, clock, metadata, files, cold or MemoryStorage(clock), settings or OffloadSettings(), ack or AT_ONCE
    )
    try:
        yield store
    finally:
        store.close()


def assert_layout(store: TestStore, name: str, *, local: list[int], cold: list[int]) -> None:
    """Return the lengths of a segment's chunks in both tiers; check that both lists are sound."""
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
        for tier, expected in ((Tier.LOCAL, local), (Tier.COLD, cold)):
            found = list(chains.chunks(txn, segment.id, tier))
            assert [chunk.length for chunk in found] == expected, f"{tier.name} chunks of {name}"
            state = segment.tier_state(tier)
            assert (state.count, state.bytes) == (len(expected), sum(expected))
            following = [*(chunk.start_offset for chunk in found[1:]), 0][: len(found)]
            assert [chunk.next for chunk in found] == following, f"{tier.name} list of {name}"
            if found:
                assert (state.first_chunk, state.last_chunk) == (found[0].start_offset, found[-1].start_offset)
        segment.check()
