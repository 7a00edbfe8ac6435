"""Programs move objects to the archive and back, and thaw them, as the commands do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tierfs
from tests.conftest import Bucket
from tests.servers.archive import archive_server
from tests.tiering.archive.archiving import ArchivedStore
from tierfs.app import thaw
from tierfs.base.words.errors import Archived, InvalidRequest

pytestmark = pytest.mark.slow


def test_objects_move_are_thawed_and_move_back(
    tmp_path: Path, moto_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thaw, "FIRST_PAUSE_S", 0.01)
    with archive_server(moto_bucket[0].endpoint_url, looks=3) as server:
        bucket = (replace(moto_bucket[0], endpoint_url=server.url), moto_bucket[1])
        ArchivedStore.new(tmp_path / "store", bucket).fill({"logs/a": b"line\n" * 100})
        with tierfs.open_store(tmp_path / "store") as store:
            assert store.archive("logs", storage_class="STANDARD_IA").objects == 1
            with pytest.raises(InvalidRequest, match="logs has no policy archive_class"):
                store.archive("logs")
            server.archives = True
            with pytest.raises(Archived):
                store.segment("logs/a").read()
            with pytest.raises(InvalidRequest, match="0 days"):
                store.thaw("logs", days=0)
            with pytest.raises(InvalidRequest, match="at the speed fast"):
                store.thaw("logs", speed="fast")
            assert not store.thaw("logs").is_ready
            assert store.thaw("logs", wait=True).is_ready
            assert store.segment("logs/a").read() == b"line\n" * 100
            server.archives = False
            assert store.archive("logs", back=True).objects == 1
