"""A process that appends numbered records, several threads at once, and prints each acknowledgment.

    python -m tests.reality.ack_appender STORE SEED cold|local NAME=NEXT@OFFSET...

One thread for each NAME begins with record NEXT, to be at OFFSET, unless it is in the segment already: each process
before may have stored one that nobody was told of. `NAME NEXT END` is printed once a record is acknowledged, and
`refused NAME ERROR TEXT` when it is not; it tries again then.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import threading
import time
from pathlib import Path

from tests.reality.expected import record
from tierfs.app import store as app
from tierfs.base.words.errors import TierfsError
from tierfs.base.words.types import Ack

# After a refusal.
_AGAIN_S = 0.2

# Of what is told of each record, so that few fit in a pipe of one page.
_LINE_BYTES = mmap.PAGESIZE // 8 - 1


def run(store: app.Store, seed: str, ack: Ack, name: str, number: int, at: int) -> None:
    """Append records until the process is killed."""
    writer = store.engine.open_writer(name, ack=ack, take_over=True)
    while at < writer.length:
        number, at = number + 1, at + len(record(seed, name, number))
    while True:
        data = record(seed, name, number)
        end = writer.append(data, expected_offset=at).end
        os.write(sys.stdout.fileno(), f"{name} {number} {end}".ljust(_LINE_BYTES).encode() + b"\n")
        number, at = number + 1, end


def main() -> None:
    path, seed, ack, *jobs = sys.argv[1:]
    fcntl.fcntl(sys.stdout, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
    with app.open_store(Path(path)) as store:
        threads = []
        for job in jobs:
            name, place = job.split("=")
            number, at = place.split("@")
            threads.append(threading.Thread(target=_told, args=(store, seed, Ack(ack), name, int(number), int(at))))
            threads[-1].start()
        for thread in threads:
            thread.join()


def _told(store: app.Store, seed: str, ack: Ack, name: str, number: int, at: int) -> None:
    while True:
        try:
            run(store, seed, ack, name, number, at)
        except TierfsError as exc:
            line = f"refused {name} {type(exc).__name__} {exc}"
            os.write(sys.stdout.fileno(), line.ljust(_LINE_BYTES).encode() + b"\n")
            time.sleep(_AGAIN_S)


if __name__ == "__main__":
    main()
