"""A sound store has no finding."""

from __future__ import annotations

from pathlib import Path

from tests.fsck.looking import cold_findings, findings
from tests.stores import open_test_store


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
