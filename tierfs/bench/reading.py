"""Reading files of a mount as programs do."""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path

from tierfs.errors import DataLoss
from tierfs.types import MIB, ByteRange

_BLOCK_BYTES = MIB
"""As `dd bs=1M`."""

SMALL_BYTES = 4096


def sequential_s(path: Path, wanted: ByteRange) -> float:
    """Seconds of reading a range of a file from its start to its end. Raises DataLoss when it is shorter."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        started, at = time.perf_counter(), wanted.start
        while at < wanted.end:
            done = os.preadv(fd, [block[: wanted.end - at]], at)
            if not done:
                raise DataLoss(f"{path} ends at {at}, before {wanted.end}")
            at += done
        return time.perf_counter() - started
    finally:
        os.close(fd)


def random_s(path: Path, length_bytes: int, count: int, chosen: random.Random) -> float:
    """Median seconds of `count` reads of 4 KiB at random."""
    block = memoryview(bytearray(SMALL_BYTES))
    taken = []
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(count):
            at = chosen.randrange(max(1, length_bytes // SMALL_BYTES)) * SMALL_BYTES
            started = time.perf_counter()
            os.preadv(fd, [block], at)
            taken.append(time.perf_counter() - started)
    finally:
        os.close(fd)
    return statistics.median(taken)
