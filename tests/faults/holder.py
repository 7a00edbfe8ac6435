"""A holder that prints when it begins a phase of its work, so that it can be killed in the middle of it.

python -m tests.faults.holder STORE offload|publish|evict|collect

It ticks a hundred times a second. `held` is printed once it holds the store, the phase's name whenever
it begins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from tierfs.app import store as app
from tierfs.app.mount import holder_task_of
from tierfs.garbage.collect import Collector
from tierfs.holder.tasks import BackgroundThreads
from tierfs.journal.publish import Publisher
from tierfs.tiering import evict, objects

TICK_S = 0.01

PHASES: dict[str, tuple[Any, str]] = {
    "offload": (objects, "make"),
    "publish": (Publisher, "_create"),
    "evict": (evict, "_evictable"),
    "collect": (Collector, "_delete"),
}


def say(word: str) -> None:
    """One write for one line: two uploads begin at once, and print() would mix their words."""
    os.write(sys.stdout.fileno(), f"{word}\n".encode())


def announce(phase: str) -> None:
    """Print the phase's name before each call of its function."""
    owner, name = PHASES[phase]
    original: Callable[..., Any] = getattr(owner, name)

    def loud(*arguments: Any, **named: Any) -> Any:
        say(phase)
        return original(*arguments, **named)

    setattr(owner, name, loud)


def main() -> None:
    path, phase = Path(sys.argv[1]), sys.argv[2]
    announce(phase)
    with app.open_store(path) as store:
        store.settings = replace(store.settings, background=replace(store.settings.background, tick_s=TICK_S))
        keeper = holder_task_of(store, BackgroundThreads())
        assert keeper is not None
        trio.run(lambda: keeper.run(wait=False, on_held=lambda: say("held")))


if __name__ == "__main__":
    main()
