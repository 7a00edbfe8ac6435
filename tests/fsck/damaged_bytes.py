"""Damages of files, objects and their bytes by name; as damaged_records."""

from __future__ import annotations

import os

from tests.fsck.damage import Damages, cold_path, flip, local_path
from tierfs.app.store import Store
from tierfs.fsck.findings import Kind
from tierfs.journal.names import checkpoint_name, slot_name

DAMAGES = Damages()


# Local files


@DAMAGES.add(Kind.FILE_MISSING)
def file_gone_that_is_cold_too(store: Store) -> None:
    local_path(store, "s").unlink()


@DAMAGES.add(Kind.FILE_MISSING, lost=True)
def file_gone_that_was_the_only_copy(store: Store) -> None:
    local_path(store, "t").unlink()


@DAMAGES.add(Kind.FILE_SHORT)
def file_cut_that_is_cold_too(store: Store) -> None:
    path = local_path(store, "s")
    path.chmod(0o600)
    os.truncate(path, 2)
    path.chmod(0o440)


# The bucket


@DAMAGES.add(Kind.OBJECT_MISSING, cold=True)
def object_gone_that_is_local_too(store: Store) -> None:
    cold_path(store, "s").unlink()


@DAMAGES.add(Kind.OBJECT_MISSING, cold=True, lost=True)
def object_gone_that_was_the_only_copy(store: Store) -> None:
    cold_path(store, "c").unlink()


@DAMAGES.add(Kind.OBJECT_DIFFERS, cold=True)
def object_of_another_length(store: Store) -> None:
    path = cold_path(store, "s")
    path.chmod(0o600)
    path.write_bytes(b"x")


@DAMAGES.add(Kind.JOURNAL, cold=True)
def slot_gone(store: Store) -> None:
    with store.metadata.read() as txn:
        (store.paths.cold / slot_name(txn.store.journal.next_slot - 2)).unlink()


@DAMAGES.add(Kind.JOURNAL, cold=True, mended=False)
def newest_slot_gone(store: Store) -> None:
    """So does a cold tier look that was put back to an earlier copy: nothing is written there."""
    with store.metadata.read() as txn:
        (store.paths.cold / slot_name(txn.store.journal.next_slot - 1)).unlink()


@DAMAGES.add(Kind.JOURNAL, cold=True)
def slot_damaged(store: Store) -> None:
    with store.metadata.read() as txn:
        flip(store.paths.cold / slot_name(txn.store.journal.next_slot - 2), -1)


@DAMAGES.add(Kind.JOURNAL, cold=True)
def checkpoint_gone(store: Store) -> None:
    store.cold_work().tools.checkpointer.checkpoint()
    with store.metadata.read() as txn:
        (store.paths.cold / checkpoint_name(txn.store.journal.checkpoint_slot)).unlink()


@DAMAGES.add(Kind.JOURNAL, cold=True)
def part_of_a_checkpoint_damaged(store: Store) -> None:
    store.cold_work().tools.checkpointer.checkpoint()
    (part,) = (store.paths.cold / "journal").glob("checkpoint-*.part-*")
    flip(part, -1)


# Bytes


@DAMAGES.add(Kind.BYTES, deep=True)
def bit_of_a_file_that_is_cold_too(store: Store) -> None:
    flip(local_path(store, "s"), 1)


@DAMAGES.add(Kind.BYTES, deep=True)
def bit_of_an_object_that_is_local_too(store: Store) -> None:
    flip(cold_path(store, "s"), 1)


@DAMAGES.add(Kind.BYTES, deep=True, lost=True)
def bit_of_the_only_copy_in_a_file(store: Store) -> None:
    flip(local_path(store, "t"), 1)


@DAMAGES.add(Kind.BYTES, deep=True, lost=True)
def bit_of_the_only_copy_in_an_object(store: Store) -> None:
    flip(cold_path(store, "c"), 1)
