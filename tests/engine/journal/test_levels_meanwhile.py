"""Levels while others read, and where one of them is damaged."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from tests import verbs
from tests.app.recovery.test_recover import damage
from tests.engine.journal.replaying import view
from tests.engine.journal.test_levels import checkpoint, filled, grow, grow_much, same_as, state_stays, store
from tests.mount.conftest import append
from tests.stores import IN_MEMORY, TestStore
from tierfs.app import repair_tools
from tierfs.app import store as app
from tierfs.app.recovery.from_journal import Rebuilder
from tierfs.app.setup.create import init_store
from tierfs.base.bytes.progress import Meter
from tierfs.engine.journal import kept_entries, levels, reader
from tierfs.engine.journal.names import level_part_name, slot_name
from tierfs.engine.journal.reader import JournalListing

__all__ = ["filled", "state_stays", "store"]


@pytest.mark.usefixtures("state_stays")
@pytest.mark.parametrize("harm", ["damaged level", "missing slot"])
def test_a_checkpoint_that_cannot_join_what_is_there_writes_the_state(
    store: TestStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    expected_warnings: list[str],
    harm: str,
) -> None:
    """Else no checkpoint would be written any more, until a person repairs the journal."""
    expected_warnings.append("the whole state is written as a new checkpoint")
    monkeypatch.setattr(levels, "PART_BYTES", 10_000)
    monkeypatch.setattr(levels, "TAIL_BYTES", 8_000)
    monkeypatch.setattr(kept_entries, "KEPT_BYTES", 0)
    checkpoint(store)
    grow_much(store, "s", 20)
    short = checkpoint(store).levels[-1]
    grow_much(store, "t", 20)
    if harm == "damaged level":
        for copy in (False, True):
            damage(store.cold, level_part_name(short.slot, short.attempt, 0, copy=copy))
    else:
        damage(store.cold, slot_name(short.slot + 1))
    with caplog.at_level(logging.WARNING):
        assert [level.has_entries for level in checkpoint(store).levels] == [False]
    assert len(caplog.records) == 1
    same_as(store, tmp_path / "new")
    assert parts_not_listed(store) == []


def test_a_repair_writes_the_state_also_when_a_checkpoint_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else that one would refer to the level that is to be mended, and take the slot."""
    monkeypatch.setattr(levels, "SMALL_BYTES", 0)
    init_store(tmp_path / "store")
    (tmp_path / "store/store.toml").write_text("[offload]\ncheckpoint_entries = 1\n")
    with app.open_store(tmp_path / "store") as store:
        for name in ("s", "t"):
            append(store, name, b"abcdefgh", seal=True)
            verbs.offload(store, "")
        repair_tools.tools(store, lambda *_: False).checkpoint()
        storage = store.cold_work().cold.storage
        listing = reader.list_journal(storage)
        newest = reader.read_manifest(storage, listing.checkpoints[max(listing.checkpoints)])
        assert [level.has_entries for level in newest.levels] == [False]


def parts_not_listed(store: TestStore) -> list[str]:
    """Parts that no checkpoint lists."""
    listing = reader.list_journal(store.cold)
    listed = {
        name
        for item in listing.checkpoints.values()
        for part in reader.parts_of(reader.read_manifest(store.cold, item))
        for name in part.names
    }
    return sorted(listing.parts.keys() - listed)


@pytest.mark.usefixtures("state_stays")
def test_a_level_that_was_written_while_the_journal_was_listed_is_not_missing(store: TestStore, tmp_path: Path) -> None:
    """Its names come before those of slots, and its checkpoint after them."""
    checkpoint(store)
    early = reader.list_journal(store.cold)
    grow(store, "s")
    newest = checkpoint(store)
    late = reader.list_journal(store.cold)
    seen = JournalListing(late.slots, late.checkpoints, early.parts)
    rebuilt = Rebuilder(tmp_path / "new", store.cold, IN_MEMORY, store.clock, Meter()).rebuild(seen)
    with closing(rebuilt.metadata) as metadata, metadata.read() as theirs, store.metadata.read() as ours:
        assert view(theirs) == view(ours)
    assert (rebuilt.checkpoint_slot, rebuilt.warnings) == (newest.slot, ())
