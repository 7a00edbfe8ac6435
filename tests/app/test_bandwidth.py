"""`offload.bandwidth`: what passes within it, and that a reload changes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import verbs
from tierfs.app.move import move
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.progress import unseen
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB, ROOT_DIRECTORY
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import policies
from tierfs.upkeep.holder.perform import perform
from tierfs.upkeep.holder.verbs import COMPRESS, CONSOLIDATE, DRY_RUN, flags

BYTES = 3 * MIB
JOURNAL_BYTES = 256 * 1024


def set_bandwidth(store: Store, written: str) -> None:
    store.paths.settings.write_text(f'[offload]\nbandwidth = "{written}"\npack_below_bytes = 0\n', encoding="utf-8")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    init_store(tmp_path / "store")
    store = open_store(tmp_path / "store")
    set_bandwidth(store, "1TiB")
    store.reload()
    return store


def test_offload_and_consolidation_and_move_pass_within_it(store: Store, tmp_path: Path) -> None:
    with store:
        sent, received = store.limits.pace.sent, store.limits.pace.received
        for _ in range(3):
            writer = store.engine.open_writer("d/s")
            writer.append(os.urandom(MIB))
            store.engine.close_writer(writer)
            verbs.offload(store)
        assert BYTES <= sent.granted_bytes <= BYTES + JOURNAL_BYTES
        assert received.granted_bytes <= JOURNAL_BYTES
        perform(store, CONSOLIDATE, "", flags({DRY_RUN: False}))
        assert received.granted_bytes >= BYTES, "a copy is read back"
        before = received.granted_bytes
        sent_before = sent.granted_bytes
        (tmp_path / "new").mkdir()
        move(store, Place.in_directory(tmp_path / "new"), unseen)
        assert sent.granted_bytes - sent_before >= BYTES
        assert received.granted_bytes - before >= 2 * BYTES, "what is copied is read, and proved"


def test_bytes_that_are_compressed_pass_as_they_are_stored(store: Store) -> None:
    """The plain ones are read once, the compressed ones sent and read back once; none of them twice."""
    with store:
        sent, received = store.limits.pace.sent, store.limits.pace.received
        writer = store.engine.open_writer("d/s")
        writer.append(os.urandom(MIB).hex().encode() + bytes(MIB))
        store.engine.close_writer(writer)
        verbs.offload(store)
        verbs.evict(store)
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"compression": "zstd"})
        sent_before, received_before = sent.granted_bytes, received.granted_bytes
        stored_bytes = perform(store, COMPRESS, "", flags({DRY_RUN: False})).stored_bytes
        assert 0.3 * BYTES < stored_bytes < 0.5 * BYTES
        assert 0 <= sent.granted_bytes - sent_before - stored_bytes <= JOURNAL_BYTES
        assert 0 <= received.granted_bytes - received_before - BYTES - stored_bytes <= JOURNAL_BYTES


def test_a_reload_changes_the_limit_of_transfers_that_wait(store: Store) -> None:
    with store:
        pace = store.limits.pace
        assert pace.sent.bytes_per_s == pace.received.bytes_per_s == 1 << 40
        set_bandwidth(store, "10MiB")
        store.reload()
        assert pace.sent.bytes_per_s == pace.received.bytes_per_s == 10 * MIB
        assert store.limits.pace is pace


def test_less_than_a_block_a_second_is_refused_with_the_least_value(store: Store) -> None:
    with store:
        set_bandwidth(store, "100KiB")
        with pytest.raises(InvalidRequest, match=r"offload.bandwidth = 100KiB: less than a block") as refused:
            store.reload()
        assert refused.value.remedy == "set at least 128KiB, or 0 for no limit"
