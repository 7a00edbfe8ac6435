"""The report of --repair on mends done and not done, and its cost when there is much to mend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore
from tests.upkeep.check.looking import deep_findings, flip_local
from tierfs.app import repair_tools
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.words.errors import WrongColdTier
from tierfs.base.words.types import ByteRange, Tier
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage
from tierfs.engine.metadata import tables
from tierfs.engine.metadata.tables import CHUNKS
from tierfs.upkeep.check.findings import RECOVER, UNREACHABLE, Finding, FindingPlace, Kind, Mend, Severity
from tierfs.upkeep.check.journal import JournalCheck
from tierfs.upkeep.check.repair.copies import Mended
from tierfs.upkeep.check.repair.mender import Mender, MendTools
from tierfs.upkeep.check.repair.renew import RenewTools
from tierfs.upkeep.check.scrub.pieces import PIECE_BYTES

POLICY = {"chunk_bytes": str(4 * PIECE_BYTES), "object_bytes": str(64 * PIECE_BYTES)}


def mended(
    store: TestStore, findings: list[Finding], cold: Callable[[], ChunkStorage | None] | None = None
) -> list[Mended]:
    """Return the result of mending each finding."""
    tools = MendTools(
        metadata=store.metadata,
        files=store.files,
        storage_of=lambda _: store.cold,
        cold=cold or (lambda: store.cold),
        checkpoint=lambda: None,
        renewing=lambda: renewing(store),
        grace_ms=0,
        may_lose=lambda *_: True,
    )
    return [done for _, done in Mender(tools).run(findings)]


def renewing(store: TestStore) -> RenewTools:
    work = store.cold_work()
    return RenewTools(work.cold.location_id, work.consolidator, work.repacker)


def hole(store: TestStore, name: str) -> Finding:
    place = FindingPlace(store.segment(name).id)
    return Finding(
        Kind.HOLE, Severity.LOSS, name, "no tier has it", ByteRange(0, 10), mend=Mend.REPLACE_CHUNK, place=place
    )


def test_only_what_another_copy_mends_is_said_to_need_one(store: TestStore) -> None:
    findings = [Finding(Kind.RECORD, Severity.DAMAGE, "x", "damaged", remedy=one) for one in (RECOVER, UNREACHABLE)]
    damaged, away = mended(store, findings)
    assert damaged.left == f"only another copy can repair it: {RECOVER}"
    assert away.left is None  # nothing was tried; its own remedy is shown


def test_the_remedy_of_an_error_is_told(store: TestStore) -> None:
    store.append("s", b"abcd")

    def refuse() -> ChunkStorage | None:
        raise WrongColdTier("it has no journal of this store", remedy="mount it")

    (done,) = mended(store, [hole(store, "s")], refuse)
    assert done.left == "it has no journal of this store; mount it"


def test_a_chunk_with_bad_blocks_in_several_pieces_is_mended_at_once(store: TestStore) -> None:
    store.append("s", bytes(2 * PIECE_BYTES), seal=True)
    flip_local(store, "s", 0)
    flip_local(store, "s", PIECE_BYTES + 1)
    findings = deep_findings(store)
    assert len(findings) == 2
    assert [done.left for done in mended(store, findings)] == [None, None]


def test_the_indexes_of_packs_are_read_once_for_all_holes(store: TestStore) -> None:
    names = [f"s{number}" for number in range(5)]
    for name in names:
        store.append(name, bytes(1000), seal=True)
    store.offload()
    store.evict()
    findings = [hole(store, name) for name in names]
    with store.metadata.write() as txn:
        for name in names:
            txn.delete(CHUNKS.name, tables.chunk(store.segment(name).id, Tier.COLD, 0))
    store.cold = ScriptedStorage(store.cold)
    assert all("pack packs/" in (done.left or "") for done in mended(store, findings))
    assert store.cold.calls["read"] == 2


def test_the_cold_tier_is_proved_once_for_many_mends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold, proofs = tmp_path / "cold", []
    cold.mkdir()
    init_store(tmp_path / "store", Place.in_directory(cold))
    is_ours = JournalCheck.is_ours

    def count(self: JournalCheck) -> bool:
        proofs.append(1)
        return is_ours(self)

    monkeypatch.setattr(JournalCheck, "is_ours", count)
    with open_store(tmp_path / "store") as store:
        tools = repair_tools.tools(store, lambda *_: False)
        assert tools.cold() is tools.cold()
        assert len(proofs) == 1
        monkeypatch.setattr(repair_tools, "PROOF_S", -1.0)
        tools.cold()
        assert len(proofs) == 2
