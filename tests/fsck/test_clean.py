"""A sound store has no finding."""

from __future__ import annotations

import random
from pathlib import Path

from tests.fsck.looking import cold_findings, deep_findings, findings, flip_cold
from tests.stores import open_test_store
from tierfs.metadata import chains, policies
from tierfs.types import MIB, ROOT_DIRECTORY, Tier


def test_a_sound_store_has_no_finding(tmp_path: Path) -> None:
    with open_test_store(tmp_path / "store") as store:
        store.append("d/s", b"abcdefghij", b"klm", seal=True)
        store.append("t", b"abc")
        assert findings(store) == []
        store.offload()
        store.append("t", b"de")
        store.append("e/f/g", b"")
        assert findings(store) == []
        store.evict()
        assert findings(store) == []
        assert cold_findings(store) == []


def test_composed_objects_and_parts_of_objects_are_sound(tmp_path: Path) -> None:
    small = {"chunk_bytes": str(MIB // 4), "object_bytes": str(MIB // 2 + 3)}
    with open_test_store(tmp_path / "store", policy=small) as store:
        chosen = random.Random(3)
        for name in ("a", "b"):
            for number in range(5):
                store.append(name, chosen.randbytes(300_000 + number))
        store.engine.seal("b")
        store.offload()
        store.evict()
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {**small, "object_bytes": str(8 * MIB)})
        assert store.consolidate().segments == 2
        store.engine.concat("a", "b")
        store.engine.truncate("a", 400_000, cold_due_ms=store.clock.now_ms())
        assert [*findings(store), *cold_findings(store), *deep_findings(store)] == []
        with store.metadata.read() as txn:
            found = [chunk.length for chunk in chains.chunks(txn, store.segment("a").id, Tier.COLD)]
        assert len(found) == 2, "two composed objects"
        flip_cold(store, "a", 1_000_001)
        (bad,) = deep_findings(store)
        assert bad.range is not None
        assert bad.range.start <= 1_000_001 < bad.range.end
