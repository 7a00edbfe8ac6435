"""What segments take in the cold tier: shares of objects, plain and compressed, whole and in part."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.stores import TestStore
from tierfs.base.words.stored_size import NOTHING_STORED, StoredSize
from tierfs.base.words.types import CRC_BLOCK_BYTES, MIB, PayloadEncoding, Tier
from tierfs.engine.metadata import chains, directories, policies, stored_shares, tables
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.stored_shares import StoredShares
from tierfs.engine.metadata.tables import OBJECTS, SEGMENTS
from tierfs.engine.segments.clone import clone
from tierfs.engine.segments.usage import usage

LINE = b"2026-11-30T01:54:24Z INFO web request served in 12 ms\n"
LOG = LINE * (5 * CRC_BLOCK_BYTES // (2 * len(LINE)))


def set_policies(store: TestStore, **settings: str) -> None:
    with store.metadata.write() as txn:
        policies.change(txn, "", put_settings=settings)


def size_of(store: TestStore, name: str) -> StoredSize:
    with store.metadata.read() as txn:
        return StoredShares(txn).of(directories.segment_by_name(txn, name))


@pytest.fixture
def logs(store: TestStore) -> TestStore:
    """A store with a compressed segment, and a plain one made before."""
    set_policies(store, chunk_bytes=str(MIB), object_bytes=str(MIB))
    store.append("plain", LOG, seal=True)
    store.offload()
    set_policies(store, compression="zstd")
    store.append("log", LOG, seal=True)
    store.offload()
    return store


def test_the_shares_of_all_parts_are_the_object() -> None:
    size, chance = StoredSize(1_000_003, 123_457), random.Random(3)
    cuts = [0, *sorted(chance.sample(range(1, size.plain_bytes), 40)), size.plain_bytes]
    shares = [stored_shares.share(size, start, end) for start, end in pairwise(cuts)]
    assert sum(shares) == size.stored_bytes
    assert stored_shares.share(size, 0, 2 * size.plain_bytes) == size.stored_bytes


def test_a_compressed_segment_takes_its_object_and_a_plain_one_its_bytes(logs: TestStore) -> None:
    assert size_of(logs, "plain") == StoredSize(len(LOG), len(LOG))
    with logs.metadata.read() as txn:
        sums = txn.sums
    assert sums is not None
    assert size_of(logs, "log") == StoredSize(sums.compressed_bytes, sums.compressed_stored_bytes)
    assert sums.compressed_bytes == len(LOG)
    assert sums.compressed_stored_bytes < len(LOG) // 10
    assert sums.cold_object_bytes == len(LOG) + sums.compressed_stored_bytes
    assert sums.encoded_objects == 1


def test_the_sums_of_directories_have_it(logs: TestStore) -> None:
    with logs.metadata.read() as txn:
        [total] = usage(txn, "")
    stored_bytes = len(LOG) + size_of(logs, "log").stored_bytes
    assert (total.cold_bytes, total.cold_stored_bytes) == (2 * len(LOG), stored_bytes)


def test_a_clone_of_the_first_bytes_has_their_part_of_the_object(logs: TestStore) -> None:
    clone(logs.metadata, "log", "copy", end=CRC_BLOCK_BYTES)
    whole, part = size_of(logs, "log"), size_of(logs, "copy")
    assert part == StoredSize(CRC_BLOCK_BYTES, whole.stored_bytes * CRC_BLOCK_BYTES // len(LOG))


def test_lost_bytes_take_nothing(logs: TestStore) -> None:
    with logs.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "log")
        lost = Editor(txn, segment).lose(segment.range).segment
        txn.put(SEGMENTS, tables.u64(segment.id), lost)
    assert size_of(logs, "log") == NOTHING_STORED


def test_a_damaged_record_of_an_object_counts_as_plain(logs: TestStore) -> None:
    with logs.metadata.write() as txn:
        segment = directories.segment_by_name(txn, "log")
        [chunk] = chains.chunks(txn, segment.id, Tier.COLD)
        txn.put_raw(OBJECTS.name, tables.u64(chunk.object_id), b"\xff")
        txn.count_rows(1000, anew=True)
        other = directories.segment_by_name(txn, "plain")
        [good] = chains.chunks(txn, other.id, Tier.COLD)
        held = chains.object_of(txn, good)
        ledger = replace(held, encoding=PayloadEncoding.PULSAR_BLOCK, stored_length=held.length + 9, segment_id=1)
        txn.put(OBJECTS, tables.u64(held.id), ledger)
    assert size_of(logs, "log") == StoredSize(len(LOG), len(LOG))
    assert size_of(logs, "plain") == StoredSize(len(LOG), len(LOG) + 9)
