"""Adopting ledgers into a test store, and reading them there."""

from __future__ import annotations

from typing import Any

from tests.stores import LOCATION, TestStore
from tierfs.base.bytes.progress import Meter
from tierfs.base.options.config import ReadSettings
from tierfs.base.system.metrics import NullMetrics
from tierfs.base.words.types import LocationId, ReadPriority
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.chunkstore.read_only import ReadOnlyStorage
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.ledger.single_object import MagicWords
from tierfs.engine.metadata import entries
from tierfs.engine.metadata.records import LocationRecord
from tierfs.reading.entries import EntrySplitter, placed_entries
from tierfs.reading.reader import StoreReader
from tierfs.reading.stream import copy_segment
from tierfs.tiering.adoption.adopt import AdoptionOutcome, LedgerAdoption, State
from tierfs.tiering.adoption.plan import AdoptionPlan, LedgerPlan
from tierfs.tiering.adoption.pulsar import Reading, plan_pulsar
from tierfs.tiering.objects import ColdTier

PLACE = LocationRecord(id=LocationId(0), url="s3://theirs/offloaded", writable=False)


def planned(theirs: ChunkStorage, magic: MagicWords | None = None) -> AdoptionPlan:
    plan = AdoptionPlan()
    plan_pulsar(plan, theirs, theirs.list(""), "in", Reading(in_files=False, magic=magic))
    plan.check_names()
    return plan


def run(
    store: TestStore, theirs: ChunkStorage, plan: AdoptionPlan | None = None, **options: Any
) -> list[AdoptionOutcome]:
    publisher = Publisher(store.metadata, store.cold)
    tier = ColdTier(LOCATION, store.cold, publisher.require_recent_ownership, publisher.require_place)
    adoption = LedgerAdoption(store.metadata, ReadOnlyStorage(theirs), PLACE, 2, Meter(), cold=tier, **options)
    found = (plan or planned(theirs, options.get("magic"))).segments
    return adoption.run([one for one in found if isinstance(one, LedgerPlan)])


def states(outcomes: list[AdoptionOutcome]) -> list[State]:
    return [outcome.state for outcome in outcomes]


def read(store: TestStore, theirs: ChunkStorage, name: str) -> list[bytes]:
    """The entries of a ledger, as any reader sees them."""
    segment = store.segment(name)
    with store.metadata.read() as txn:
        end = entries.count(txn, segment.id)
    found: list[bytes] = []
    places = placed_entries(store.metadata, segment.id, 0, end)
    splitter = EntrySplitter(places, lambda _, payload: found.append(payload))
    reader = StoreReader(
        store.metadata,
        store.files,
        lambda location: store.cold if location == LOCATION else theirs,
        ReadSettings(),
        NullMetrics(),
    )
    copy_segment(reader, segment, None, None, ReadPriority.OFFLOADED_ONLY, splitter.write)
    return [*found, *(b"" for _ in range(end - len(found)))]
