"""A mount and a daemon of a store of very many segments: when each answers, what its start takes, and it at rest."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.files.many_small import watch_memory
from tests.benchmarks.resting import rest
from tierfs.base.system.store_paths import StorePaths
from tierfs.upkeep.holder import lock

_POLL_S = 0.005
_ANSWER_S = 600.0


def bench_many_resting(store: Path, mountpoint: Path) -> Iterator[str]:
    """A line for each of both, one after the other."""
    mountpoint.mkdir(exist_ok=True)
    for words, answers in (
        (("mount", str(mountpoint), "-f"), lambda: os.path.ismount(mountpoint) and any(mountpoint.iterdir())),
        (("daemon", "-f"), lambda: lock.current(StorePaths(store).holder) is not None),
    ):
        yield f"* `{words[0]}`: {_started(store, words, answers)}"


def _started(store: Path, words: tuple[str, ...], answers: Callable[[], bool]) -> str:
    began_s = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "tierfs", "-q", "--store", str(store), *words]) as process:
        try:
            peaks = {"RssAnon:": 0}
            threading.Thread(target=watch_memory, args=(process.pid, peaks), daemon=True).start()
            while not answers():
                if process.poll() is not None or time.monotonic() - began_s > _ANSWER_S:
                    raise RuntimeError(f"{words} does not answer: {process.returncode}")
                time.sleep(_POLL_S)
            answered_s = time.monotonic() - began_s
            at_rest = "; ".join(line.removeprefix("* ") for line in rest(process.pid))
            now = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            heap = next(int(line.split()[1]) for line in now if line.startswith("RssAnon:"))
        finally:
            process.terminate()
    return f"answers in {answered_s:.1f} s; {at_rest}; {heap >> 10} MiB, at most {peaks['RssAnon:'] >> 10}"
