"""Trust in the wall clock: a function of what is known about the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Bucket
from tests.stores import open_test_store
from tierfs.app import store as app
from tierfs.chunkstore.protocol import ChunkStorage
from tierfs.clock import ManualClock
from tierfs.retention.clocks import ClockCheck, ClockView, Instant, disagreement
from tierfs.setup import connect
from tierfs.setup.connect import connect_bare
from tierfs.setup.create import ColdChoice, init_store

START_MS = 1_700_000_000_000
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def view(
    *, ran_s: float = HOUR_S, wall_off_s: float = 0, rested_s: float = 0, server_off_s: float | None = None
) -> ClockView:
    """A process that began `ran_s` ago; `wall_off_s`: what its wall clock jumped since."""
    began = Instant(START_MS, 1000.0)
    now = Instant(began.expected_ms(1000.0 + ran_s) + round(wall_off_s * 1000), 1000.0 + ran_s)
    server = None if server_off_s is None else Instant(now.wall_ms + round(server_off_s * 1000), now.boot_s)
    return ClockView(now, began, START_MS - round(rested_s * 1000), server)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (view(), None),
        (view(wall_off_s=5 * MINUTE_S), None),
        (view(wall_off_s=5 * MINUTE_S + 0.001), "300 s ahead of the time since this machine's boot"),
        (view(wall_off_s=-5 * MINUTE_S - 0.001), "300 s behind the time since this machine's boot"),
        (view(wall_off_s=6 * MINUTE_S), "360 s ahead of the time since this machine's boot"),
        (view(wall_off_s=-HOUR_S), "3,600 s behind the time since this machine's boot"),
        (view(wall_off_s=365 * DAY_S), "ahead of the time since this machine's boot"),
        (view(wall_off_s=HOUR_S, server_off_s=0), None),
        (view(wall_off_s=0, server_off_s=-HOUR_S), "3,600 s ahead of the cold tier's server"),
        (view(wall_off_s=0, server_off_s=HOUR_S), "3,600 s behind the cold tier's server"),
        (view(ran_s=0, rested_s=-HOUR_S), "3,600 s behind the newest time in the store's metadata"),
        (view(ran_s=2 * HOUR_S, rested_s=-HOUR_S), None),
        (view(rested_s=30 * DAY_S), None),
        (view(rested_s=365 * DAY_S), "365 days old, and no server confirms that"),
        (view(rested_s=365 * DAY_S, server_off_s=0), None),
        (view(ran_s=DAY_S, rested_s=365 * DAY_S), None),
    ],
)
def test_what_is_trusted(found: ClockView, said: str | None) -> None:
    reason = disagreement(found)
    assert (reason is None) == (said is None)
    assert said is None or (reason is not None and said in reason), reason


def test_the_answer_of_a_server_does_not_count_for_ever(tmp_path: Path, expected_warnings: list[str]) -> None:
    expected_warnings.append("not trusted")
    clock = ManualClock()
    with open_test_store(tmp_path / "store", clock=clock) as store:
        clocks = ClockCheck(store.metadata, clock, clock.now_ms)
        clock.jump(HOUR_S)
        clocks.ask()
        clock.advance(20 * MINUTE_S)
        assert clocks.reason() is None
        clock.advance(0.001)
        assert clocks.reason() is not None


def test_the_server_is_asked_by_the_connection_there_is(
    moto_bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, bucket = moto_bucket
    choice = ColdChoice(bucket_url=f"s3://{bucket}/p", endpoint_url=endpoint.endpoint_url)
    init_store(tmp_path / "store", choice)
    made: list[ChunkStorage] = []

    def connected(*arguments: Any, **named: Any) -> ChunkStorage:
        made.append(connect_bare(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(connect, "connect_bare", connected)
    with app.open_store(tmp_path / "store") as store:
        clocks = store.cold_work().tools.clocks
        clocks.require()
        assert clocks._server is not None
    assert len(made) == 1
