"""An open store, as every command and mount has it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.commands import tierfs
from tierfs.app import store as app
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import ChunkStorage

THREADS = 8
SLOW_S = 0.1


def test_threads_that_ask_at_once_share_one_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all but the last would stay open."""
    (tmp_path / "cold").mkdir()
    tierfs("-q", "init", "--cold-dir", tmp_path / "cold", store=tmp_path / "store")
    barrier = Barrier(THREADS)
    original, made = Place.open, []

    def counted(*arguments: Any, **named: Any) -> ChunkStorage:
        time.sleep(SLOW_S)  # the others come in meanwhile, if they can
        made.append(original(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(Place, "open", counted)
    with app.open_store(tmp_path / "store") as store, ThreadPoolExecutor(THREADS) as pool:
        location_id = store.cold_location_id
        assert location_id is not None

        def ask(_: int) -> ChunkStorage:
            barrier.wait()
            return store.storage_of(location_id).connection()

        assert len(set(map(id, pool.map(ask, range(THREADS))))) == 1
    assert len(made) == 1
