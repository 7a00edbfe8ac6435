"""Commands beside a holder: the remains of one that died, and a replica that a mount follows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.commands import tierfs
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.base.system.clock import SystemClock
from tierfs.base.words.types import AttemptId, LocationId, SegmentId
from tierfs.engine.metadata.records import IntentRecord
from tierfs.engine.metadata.tables import INTENTS
from tierfs.upkeep.holder.lock import hold

NAME = "segments/s/5/chunk-00000000000000000000-00000000000000000007-e1-0a"


def test_objects_that_a_dead_owner_was_making_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    init_store(path)
    with app.open_store(path) as store, store.metadata.write() as txn:
        intent = IntentRecord(
            attempt=AttemptId("0a"),
            location_id=LocationId(1),
            name=NAME,
            segment_id=SegmentId(5),
            start_offset=0,
            end_offset=7,
            created_ms=txn.now_ms,
            store_epoch=1,
        )
        txn.put(INTENTS, intent.attempt.encode(), intent)
    (row,) = [json.loads(line) for line in tierfs("gc", "--json", store=path).out.splitlines()]
    assert (row["kind"], row["name"], row["bytes"]) == ("intent", NAME, 7)
    listed = tierfs("gc", store=path).out
    assert listed.startswith("unfinished 20")
    assert "1 object of an owner that crashed" in listed
    with hold(path / "locks" / "holder", SystemClock()):  # who holds the store now has it in hand, unless it is older
        with app.open_store(path) as store, store.metadata.write() as txn:
            txn.put(INTENTS, b"0b", replace(intent, created_ms=txn.now_ms + 1000, name="new"))
        names = [json.loads(line)["name"] for line in tierfs("gc", "--json", store=path).out.splitlines()]
        assert names == [NAME]
