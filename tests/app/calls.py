"""Own calls of single operations: `python -m tests.app.calls` prints them."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import trio

from tests import verbs
from tests.costs import own_calls
from tierfs.app.recovery.recover import recover_store
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.progress import unseen
from tierfs.base.words.types import MIB
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.metadata import directories

BLOCK = os.urandom(4096)


def of_appends(directory: Path) -> dict[str, Counter[str]]:
    """Count an append by a writer that has appended before, and the whole life of a writer of a new segment."""
    init_store(directory, None)
    with open_store(directory) as store:
        writer = store.engine.open_writer("d/warm")
        for _ in range(3):
            writer.append(BLOCK)
        with own_calls() as warm:
            writer.append(BLOCK)
        _write_new(store, "d/first")
        with own_calls() as new:
            _write_new(store, "d/new")
    return {"append 4 KiB, warm writer": warm, "open a new segment, append 100 B, close": new}


def _write_new(store: Store, name: str) -> None:
    writer = store.engine.open_writer(name)
    writer.append(BLOCK[:100])
    store.engine.close_writer(writer)


def of_cold_read(directory: Path) -> dict[str, Counter[str]]:
    """Count a read of 4 KiB at a random place of a cold segment, and the same from memory."""
    init_store(directory)
    with open_store(directory) as store:
        verbs.fill(store.engine, "d/s", [os.urandom(8 * MIB)])
        verbs.offload(store)
        verbs.evict(store)
        return trio.run(_read, store)


async def _read(store: Store) -> dict[str, Counter[str]]:
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, "d/s")
    async with store.reader() as reader:
        handle = reader.open(segment.id)
        for place in (5, 1, 3):
            await handle.read(place * MIB, len(BLOCK))
        counts = []
        for place in (2, 6, 7):
            with own_calls() as counted:
                await handle.read(place * MIB, len(BLOCK))
            await reader.settle()
            counts.append(counted)
        cold = min(counts, key=Counter.total)  # a request that is late, as on a busy machine, is sent twice
        with own_calls() as again:
            await handle.read(7 * MIB, len(BLOCK))
        handle.close()
    return {"read 4 KiB, cold, random": cold, "the same from memory": again}


def of_recovery(directory: Path) -> dict[str, Counter[str]]:
    """Count a recovery of a store of one segment, whose bucket is a directory; not the first one of the process."""
    directory.mkdir()
    bucket = directory / "cold"
    bucket.mkdir()
    init_store(directory / "store", Place.in_directory(bucket))
    with open_store(directory / "store") as store:
        verbs.fill(store.engine, "d/s", [os.urandom(65536)])
        verbs.offload(store)
    recover_store(directory / "first", Place.in_directory(bucket), unseen)
    with own_calls() as recovery:
        recover_store(directory / "second", Place.in_directory(bucket), unseen)
    return {"recover a store of one segment": recovery}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        counted = of_appends(Path(place) / "appends") | of_cold_read(Path(place) / "reads")
        counted |= of_recovery(Path(place) / "recovery")
    for what, own in counted.items():
        print(f"{what}: {own.total()} calls in {len(own)} modules")
