"""Bytes of cold ledgers: damage is found in its place, costs no more than itself, and is repaired."""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

from tests.app.recovery.recovering import recovered
from tests.ledgers import cold_bytes, ledger_names, new_ledger, offload
from tests.stores import TestStore
from tests.upkeep.check.looking import cold_findings, deep_findings, findings
from tests.upkeep.check.test_mender import mended
from tierfs.base.words.types import CRC_BLOCK_BYTES, ByteRange, ChunkState, Tier
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.metadata import chains, directories
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.upkeep.check.findings import Kind

POLICY = {"chunk_bytes": "1048576", "object_bytes": "1048576"}

PAYLOADS = [random.Random(number).randbytes(1000) for number in range(500)]
WHOLE = b"".join(PAYLOADS)


def flip(store: TestStore, wanted: bytes, shift: int = 0) -> None:
    """Flip a bit in the data object, `shift` bytes from where some bytes lie."""
    assert isinstance(store.cold, MemoryStorage)
    key = ledger_names(store)[0]
    held = store.cold.objects[key]
    data = bytearray(held.data)
    data[data.index(wanted) + shift] ^= 0x10
    store.cold.objects[key] = replace(held, data=bytes(data))


def cold_ledger(store: TestStore) -> str:
    """A ledger that is in the cold tier alone."""
    name = new_ledger(store, PAYLOADS)
    offload(store, name, block_bytes=100_000)
    store.evict()
    return name


def test_a_bad_block_is_lost_alone_and_comes_back(store: TestStore) -> None:
    name = cold_ledger(store)
    flip(store, PAYLOADS[200])
    (finding,) = deep_findings(store)
    bad = ByteRange(CRC_BLOCK_BYTES, 2 * CRC_BLOCK_BYTES)
    assert (finding.kind, finding.range) == (Kind.BYTES, bad)
    mended(store, [finding])
    with store.metadata.read() as txn:
        chunks = list(chains.chunks(txn, store.segment(name).id, Tier.COLD))
    good, lost = ChunkState.GOOD, ChunkState.LOST
    assert [(chunk.end_offset, chunk.state) for chunk in chunks] == [
        (bad.start, good),
        (bad.end, lost),
        (len(WHOLE), good),
    ]
    assert cold_bytes(store, name, 0, bad.start) == WHOLE[: bad.start]
    assert cold_bytes(store, name, bad.end) == WHOLE[bad.end :]
    flip(store, PAYLOADS[199][-100:], 100 + 12)
    assert cold_bytes(store, name) == WHOLE


def test_bytes_between_payloads_are_not_read(store: TestStore) -> None:
    name = cold_ledger(store)
    flip(store, PAYLOADS[200], -4)
    assert deep_findings(store) == []
    assert cold_bytes(store, name) == WHOLE


def test_a_ledger_whose_objects_went_bad_is_offloaded_anew(store: TestStore) -> None:
    name = new_ledger(store, PAYLOADS)
    before = offload(store, name, block_bytes=100_000)
    flip(store, PAYLOADS[200])
    mended(store, deep_findings(store))
    check_offloaded_anew(store, name, before)


def test_what_is_left_of_a_cold_form_is_read_until_there_is_another(store: TestStore) -> None:
    name = new_ledger(store, PAYLOADS)
    before = offload(store, name, block_bytes=100_000)
    with store.metadata.write() as txn:
        segment = directories.segment_by_name(txn, name)
        bad = ByteRange(CRC_BLOCK_BYTES, 2 * CRC_BLOCK_BYTES)
        Editor(txn, segment).lose(bad).put(journaled=True)
    assert isinstance(store.cold, MemoryStorage)
    put, rest = store.cold.put, slice(bad.end, bad.end + 1000)

    def reading(*arguments, **options):
        assert cold_bytes(store, name, rest.start, rest.stop) == WHOLE[rest]
        return put(*arguments, **options)

    store.cold.put = reading  # type: ignore[method-assign]
    check_offloaded_anew(store, name, before)


def check_offloaded_anew(store: TestStore, name: str, before: UUID) -> None:
    assert not store.segment(name).whole_in_cold
    store.offload(name)
    assert store.segment(name).whole_in_cold
    store.settle()
    assert [str(before) in key for key in ledger_names(store)] == [False, False]
    store.evict()
    assert cold_bytes(store, name) == WHOLE
    assert [*findings(store), *cold_findings(store), *deep_findings(store)] == []
    with recovered(store.path / "new", store.cold) as found:
        assert cold_bytes(found.store, name) == WHOLE
