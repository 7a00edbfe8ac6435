"""Damages of files, objects and their bytes by name; as damaged_records."""

from __future__ import annotations

import os
from pathlib import Path

from tests.upkeep.check.damage import Damages, Do, cold_path, flip, local_path
from tierfs.app.store import Store
from tierfs.engine.journal.names import checkpoint_name, slot_name
from tierfs.upkeep.check.findings import Kind

DAMAGES = Damages()


def damage(name: str, kind: Kind, do: Do, **marks: bool) -> None:
    do.__name__ = name
    DAMAGES.add(kind, **marks)(do)


def cut(path: Path, length: int) -> None:
    mode = path.stat().st_mode
    path.chmod(0o600)
    os.truncate(path, length)
    path.chmod(mode)


def slot(store: Store, back: int) -> Path:
    """The entry that is so many before the next one."""
    with store.metadata.read() as txn:
        return store.paths.cold / slot_name(txn.store.journal.next_slot - back)


def checkpoint(store: Store, *, part: bool) -> Path:
    """Make a checkpoint; return its manifest or its part."""
    store.cold_work().checkpointer.checkpoint()
    if part:
        return next((store.paths.cold / "journal").glob("checkpoint-*.part-*"))
    with store.metadata.read() as txn:
        return store.paths.cold / checkpoint_name(txn.store.journal.checkpoint_slot)


# Local files
damage("file_gone_that_is_cold_too", Kind.FILE_MISSING, lambda store: local_path(store, "s").unlink())
damage("file_gone_that_was_the_only_copy", Kind.FILE_MISSING, lambda store: local_path(store, "t").unlink(), lost=True)
damage("file_cut_that_is_cold_too", Kind.FILE_SHORT, lambda store: cut(local_path(store, "s"), 2))

# The bucket; without its newest slot a cold tier looks as if put back to an earlier copy: nothing is written there
MISSING = Kind.OBJECT_MISSING
damage("object_gone_that_is_local_too", MISSING, lambda store: cold_path(store, "s").unlink(), cold=True)
damage(
    "object_gone_that_was_the_only_copy", MISSING, lambda store: cold_path(store, "c").unlink(), cold=True, lost=True
)
damage("object_of_another_length", Kind.OBJECT_DIFFERS, lambda store: cut(cold_path(store, "s"), 1), cold=True)
damage("slot_gone", Kind.JOURNAL, lambda store: slot(store, 2).unlink(), cold=True)
damage("newest_slot_gone", Kind.JOURNAL, lambda store: slot(store, 1).unlink(), cold=True, mended=False)
damage("slot_damaged", Kind.JOURNAL, lambda store: flip(slot(store, 2), -1), cold=True)
damage("checkpoint_gone", Kind.JOURNAL, lambda store: checkpoint(store, part=False).unlink(), cold=True)
damage("part_of_a_checkpoint_damaged", Kind.JOURNAL, lambda store: flip(checkpoint(store, part=True), -1), cold=True)

# Bytes
damage("bit_of_a_file_that_is_cold_too", Kind.BYTES, lambda store: flip(local_path(store, "s"), 1), deep=True)
damage("bit_of_an_object_that_is_local_too", Kind.BYTES, lambda store: flip(cold_path(store, "s"), 1), deep=True)
damage(
    "bit_of_the_only_copy_in_a_file", Kind.BYTES, lambda store: flip(local_path(store, "t"), 1), deep=True, lost=True
)
damage(
    "bit_of_the_only_copy_in_an_object", Kind.BYTES, lambda store: flip(cold_path(store, "c"), 1), deep=True, lost=True
)
