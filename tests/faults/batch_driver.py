"""A driver with one executor, that stops in a phase of its work, so that it can be killed there or continued.

    python -m tests.faults.batch_driver STORE upload|manifest|transaction|publish|none [REPEATS]

It writes version 1 of `nightly` below `out`: the segments `part-0` and `part-1`, which begin with its own pid. The
phase's name is printed before it begins; SIGUSR1 lets it go on. At the end `written` or `repeated` is printed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tierfs.app import batch_write
from tierfs.app import store as app
from tierfs.chunkstore.protocol import BufferSource
from tierfs.journal.publish import Publisher
from tierfs.segments import batch_commit
from tierfs.tiering import batch_job, batch_upload
from tierfs.types import MIB

TAIL = bytes(range(256)) * (3 * MIB // 256)


class PausingSource(BufferSource):
    """Stops before the last bytes of the first object are read, others being on their way."""

    def read(self, offset: int, length_bytes: int) -> Any:
        if offset and offset + length_bytes >= self.length_bytes:
            pause("upload")
        return super().read(offset, length_bytes)


def say(word: str) -> None:
    os.write(sys.stdout.fileno(), f"{word}\n".encode())


def pause(phase: str) -> None:
    say(phase)
    signal.sigwait({signal.SIGUSR1})


def stop_before(owner: Any, name: str, phase: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def paused(*arguments: Any, **named: Any) -> Any:
        pause(phase)
        return original(*arguments, **named)

    setattr(owner, name, paused)


def prepare(phase: str) -> None:
    if phase == "upload":
        batch_upload.BufferSource = PausingSource  # type: ignore[attr-defined]
    elif phase == "manifest":
        stop_before(batch_job, "put_manifest", phase)
    elif phase == "transaction":
        stop_before(batch_commit, "commit", phase)


def main() -> None:
    path, phase = Path(sys.argv[1]), sys.argv[2]
    content = TAIL * int(sys.argv[3] if len(sys.argv) > 3 else 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    prepare(phase)
    with app.open_store(path) as store:
        job = batch_write.begin(store, "nightly", "out")
        uploaded = []
        for partition in range(2):
            with job.upload.task(partition) as task:
                task.open(f"part-{partition}").write(b"%d " % os.getpid() + content)
                uploaded += task.finish()
        if phase == "publish":
            stop_before(Publisher, "_create", phase)
        say("repeated" if batch_write.commit(store, job, uploaded, 1).repeated else "written")


if __name__ == "__main__":
    main()
