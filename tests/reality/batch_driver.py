"""A driver with one executor, that stops in a phase of its work, so that it can be killed there or continued.

    python -m tests.reality.batch_driver STORE upload|manifest|none INTO LABEL [BYTES]

It writes version 1 of the application INTO below INTO: the segments `part-0` and `part-1`, which begin with LABEL. The
phase's name is printed before it begins; SIGUSR1 lets it go on. At the end `written` or `repeated` is printed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tierfs.app import store as app
from tierfs.app.batches import driver
from tierfs.app.batches import job as batch_job
from tierfs.app.batches import upload as batch_upload
from tierfs.base.words.errors import TierfsError
from tierfs.engine.chunkstore.protocol import BufferSource


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


def main() -> None:
    path, phase, into, label = Path(sys.argv[1]), *sys.argv[2:5]
    rest = bytes(int(sys.argv[5]) if len(sys.argv) > 5 else 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    prepare(phase)
    with app.open_store(path) as store:
        job = driver.begin(store, into, into)
        uploaded = []
        for partition in range(2):
            with job.task(partition) as task:
                task.open(f"part-{partition}").write(b"%s %d%s" % (label.encode(), partition, rest))
                uploaded += task.finish()
        say("repeated" if driver.commit(store, job, uploaded, 1).repeated else "written")


if __name__ == "__main__":
    try:
        main()
    except TierfsError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
