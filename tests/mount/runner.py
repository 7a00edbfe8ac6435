"""A mount in a process of its own, for tests; prints `ready` when it answers.

    python -m tests.mount.runner STORE MOUNTPOINT [OPTIONS [FAULT]]

FAULT `broken-getattr`: looking at a segment whose name begins with `broken` raises an unexpected error.
FAULT `stalled-cold`: the cold tier never answers, or not before SIGUSR2; the end of the mount waits less for it.
FAULT `tells-soon`: reads are told to wait for the cold tier at once.
FAULT `slow-cache`: the disk cache's disk takes its time.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tierfs.app import store as app
from tierfs.app.mount import session_of
from tierfs.base.words.types import LocationId
from tierfs.mount import session, tree
from tierfs.mount.options import parse_options
from tierfs.reading import patience
from tierfs.reading.cache.cache import DiskCache
from tierfs.upkeep.holder.tasks import BackgroundThreads

SLOW_STORE_S = 0.2
END_GRACE_S = 0.5


def break_getattr() -> None:
    original = tree.attributes.of_segment

    def broken(record: Any, *rest: Any) -> Any:
        if record.name.startswith("broken"):
            raise RuntimeError("a bug")
        return original(record, *rest)

    tree.attributes.of_segment = broken


def stall(store: app.Store) -> None:
    storage, answers = store.storage_of(LocationId(1)), threading.Event()
    read_into = storage.read_into

    def late(*some: Any, **named: Any) -> None:
        answers.wait()
        read_into(*some, **named)

    storage.read_into = late  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR2, lambda *_: answers.set())
    session._END_GRACE_S = END_GRACE_S


def slow_down() -> None:
    original = DiskCache.store

    def slow(*some: Any) -> None:
        time.sleep(SLOW_STORE_S)
        original(*some)

    DiskCache.store = slow  # type: ignore[method-assign]


def main() -> None:
    store_path, mountpoint, options, fault = [*sys.argv[1:], "", ""][:4]
    if fault == "broken-getattr":
        break_getattr()
    if fault == "slow-cache":
        slow_down()
    if fault == "tells-soon":
        patience._WAITS_AFTER_S = 0
    with app.open_store(Path(store_path)) as store:
        if fault == "stalled-cold":
            stall(store)
        threads = BackgroundThreads()
        session_of(store, threads).run(Path(mountpoint), parse_options(options), lambda: print("ready", flush=True))
        threads.leave()


if __name__ == "__main__":
    main()
