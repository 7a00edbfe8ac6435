"""A mount or daemon serves metrics once it can: an address may be in use, or not be this machine's yet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from tierfs.app.background import serve_metrics
from tierfs.app.mount import session_of
from tierfs.app.setup.create import init_store
from tierfs.app.store import open_store
from tierfs.base.options.config import Settings
from tierfs.base.words.errors import InvalidRequest, Unavailable
from tierfs.upkeep.holder.tasks import BackgroundThreads


@dataclass
class Later:
    """Metrics whose address is missing at first, then in use, then free."""

    answers: list[object]
    served: trio.Event = field(default_factory=trio.Event)
    ended: bool = False

    def serve(self, address: str, *, public: bool) -> Callable[[], None] | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return None
        self.served.set()

        def end() -> None:
            self.ended = True

        return end


def test_a_mount_refuses_an_address_that_it_may_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERFS_METRICS__LISTEN", "0.0.0.0:9150")
    init_store(tmp_path / "store")
    with open_store(tmp_path / "store") as store, pytest.raises(InvalidRequest, match="is a public address"):
        session_of(store, BackgroundThreads())


def test_an_address_that_is_not_there_yet_is_waited_for_and_told_once(
    caplog: pytest.LogCaptureFixture, expected_warnings: list[str]
) -> None:
    expected_warnings.append("metrics are not served")
    away = Unavailable("cannot serve metrics at 192.0.2.1:9150: Cannot assign requested address")
    metrics = Later([away, away, None, None, "free"])

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_metrics, SimpleNamespace(settings=Settings(), metrics=metrics))
            with trio.fail_after(600):
                await metrics.served.wait()
            nursery.cancel_scope.cancel()

    with caplog.at_level(logging.WARNING, "tierfs"):
        trio.run(run, clock=MockClock(autojump_threshold=0))
    assert metrics.ended
    assert [record.message.rpartition("yet: ")[2] for record in caplog.records] == [str(away), "it is in use"]
