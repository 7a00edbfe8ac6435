"""Run a warmup of `d` whose cold tier stops answering after some bytes; print `stalled` then.

python -m tests.faces.cli.commands.stalling STORE BYTES
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from tierfs.engine.chunkstore.directory.storage import DirectoryStorage
from tierfs.faces.cli.main import cli


def stall_after(most_bytes: int) -> None:
    original, left_bytes = DirectoryStorage.read_into, most_bytes

    def read_into(storage: DirectoryStorage, name: str, offset: int, buffer: memoryview, **options: Any) -> None:
        nonlocal left_bytes
        left_bytes -= len(buffer)
        if left_bytes < 0:
            os.write(sys.stdout.fileno(), b"stalled\n")  # print() has a lock, which a thread must not hold at the end
            threading.Event().wait()
        original(storage, name, offset, buffer, **options)

    DirectoryStorage.read_into = read_into  # type: ignore[method-assign]


def main() -> None:
    store, most_bytes = sys.argv[1:]
    stall_after(int(most_bytes))
    cli.main(["--store", store, "warmup", "d"])


if __name__ == "__main__":
    main()
