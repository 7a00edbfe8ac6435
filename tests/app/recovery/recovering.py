"""Recovering a test store's cold tier into an empty directory, as `tierfs recover` does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.manual_clock import ManualClock
from tests.engine.journal.replaying import check_store
from tests.stores import IN_MEMORY, TestStore, quiet
from tierfs.app.recovery import recover
from tierfs.app.recovery.loss import SegmentLoss
from tierfs.base.options.config import OffloadSettings
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.journal.names import JOURNAL_PREFIX
from tierfs.engine.journal.publish import Publisher
from tierfs.tiering.ledgers.entry_rows import EntryRows


@dataclass(slots=True)
class Recovered:
    """A recovered store and what was said of it."""

    store: TestStore
    warnings: tuple[str, ...]
    checkpoint_slot: int
    losses: dict[str, SegmentLoss]


@contextmanager
def recovered(path: Path, cold: ChunkStorage) -> Iterator[Recovered]:
    """Recover from `cold` into `path`; every invariant is checked."""
    path.mkdir()
    rebuilt = recover.owned(path / "metadata", cold, IN_MEMORY, ManualClock(), quiet)
    metadata = rebuilt.metadata
    store = TestStore.around(path, metadata, cold, OffloadSettings())
    try:
        losses = recover.settle(metadata, Publisher(metadata, cold))
        unknown = EntryRows(metadata, cold, metadata.write).restore_all()
        with metadata.read() as txn:
            check_store(txn)
        said = {one.segment: one for one in losses.incomplete}
        yield Recovered(store, (*rebuilt.warnings, *unknown), rebuilt.checkpoint_slot, said)
    finally:
        store.close()


def lose_journal(cold: ChunkStorage) -> None:
    """Delete the journal and its checkpoints."""
    for item in list(cold.list(JOURNAL_PREFIX)):
        cold.delete(item.name)
