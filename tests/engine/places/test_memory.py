"""A cold tier in the memory of one process: gone when it ends, and said so."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

from tests.commands import tierfs
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.engine.chunkstore.place import Place


def test_a_store_lives_in_one_process(tmp_path: Path) -> None:
    url = f"memory://{uuid.uuid4().hex}/tier"
    report = init_store(tmp_path / "store", Place.parsed(url))
    assert [line for line in report.warnings if "in the memory of this process" in line]
    with closing(open_store(tmp_path / "store")) as store:
        location = store.cold_location
        assert location is not None
        assert location.url == url
        assert [stored.name for stored in store.storage_of(location.id).list("")]
    other = tierfs("status", store=tmp_path / "store")
    assert url in other.out
