"""What several threads do with one object, and what must hold afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stores import TestStore

THREADS = 4


class Case(NamedTuple):
    """`work` is called by each thread with its number; `check` at the end."""

    work: Callable[[int], object]
    check: Callable[[], object] = lambda: None


Make = Callable[[TestStore, pytest.MonkeyPatch], Iterator[Case]]


def together(work: Callable[[int], object]) -> None:
    """Begin all threads at one moment; raise the first error of any."""
    barrier, failed = threading.Barrier(THREADS), list[BaseException]()

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


def made(path: Path) -> Path:
    path.mkdir()
    return path
