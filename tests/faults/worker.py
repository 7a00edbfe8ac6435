"""The victim of the kill tests: one verb on one store, in a process of its own.

    python -m tests.faults.worker append|offload|evict STORE SEGMENT [SEED]

`append` writes the reference stream from the segment's length on, in odd sizes, forever, and prints the
segment's length after each acknowledgement. `offload` and `evict` print `working` when they begin.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from tests import verbs
from tierfs.app import store as app

REFERENCE = bytes(random.Random(1).choices(range(1, 256), k=1 << 20))
"""Never zero, so that a hole shows."""

SIZES = (1, 7, 100, 4095, 5000, 40_000, 131_072, 300_001)


def reference(start: int, end: int) -> bytes:
    """Bytes [start, end) of the endless reference stream."""
    first = start % len(REFERENCE)
    repeated = REFERENCE * ((first + end - start) // len(REFERENCE) + 1)
    return repeated[first : first + end - start]


def append(store: app.Store, name: str, seed: int) -> None:
    """Append until killed."""
    chosen = random.Random(seed)
    writer = store.engine.open_writer(name)
    while True:
        start = writer.length
        written = writer.append(reference(start, start + chosen.choice(SIZES)))
        print(written.end, flush=True)


def main() -> None:
    """Run the verb."""
    verb, path, name, seed = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    with app.open_store(path) as store:
        print("working", flush=True)
        if verb == "append":
            append(store, name, seed)
        elif verb == "offload":
            verbs.offload(store, name)
        else:
            verbs.evict(store, name)


if __name__ == "__main__":
    main()
