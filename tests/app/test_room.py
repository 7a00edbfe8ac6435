"""An append that found no room: of the local disk, where waiting may help, or of the cold tier, where it does not."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from tierfs.app.room import Room
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.words.errors import QuotaReached, StorageFull


@pytest.mark.parametrize(("error", "waits"), [(StorageFull, True), (QuotaReached, False)])
def test_the_quota_of_the_cold_tier_is_not_waited_for(tmp_path: Path, error: type[StorageFull], waits: bool) -> None:
    work, told = Mock(side_effect=error("full")), Mock()
    init_store(tmp_path / "store")
    with open_store(tmp_path / "store") as store, pytest.raises(error):
        Room(store, told, wait_s=0.1).make("a", work)
    assert (work.call_count > 1, told.warn.called) == (waits, waits)
