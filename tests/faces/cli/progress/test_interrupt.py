"""Ctrl-C ends a command whose transfers wait for bandwidth, without waiting for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import verbs
from tests.commands import new_store, tierfs
from tierfs.app.store import open_store
from tierfs.base.words.types import MIB
from tierfs.faces.cli.progress import perform_shown
from tierfs.faces.cli.session import Session
from tierfs.upkeep.holder.verbs import OFFLOAD


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.timeout(30)  # the parts that wait would take 128 s
def test_ctrl_c_ends_an_offload_that_waits_for_bandwidth(tmp_path: Path, as_in_a_terminal: None) -> None:
    path = new_store(tmp_path)
    tierfs("append", "d/s", stdin=os.urandom(24 * MIB), store=path)
    tierfs("-q", "config", "offload.bandwidth=128KiB", store=path)
    with open_store(path) as store:
        sent, pause = store.limits.pace.sent, threading.Event()

        def press() -> None:
            while not sent.waits:
                pause.wait(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        pressing = threading.Thread(target=press, daemon=True)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            perform_shown(Session(), store, OFFLOAD, "", {})
        pressing.join()
    path.joinpath("store.toml").write_text("", encoding="utf-8")
    with open_store(path) as store:
        verbs.offload(store)
        assert verbs.status(store).not_offloaded_bytes == 0, "the next command cleans up, and does the work"
