"""A mount that is never at rest: appends, offload, eviction and readers that verify, for as long as is asked for."""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.benchmarks.measuring import store_served
from tests.reality.reference import REFERENCE
from tierfs.app import store as app
from tierfs.metadata import policies
from tierfs.setup.create import ColdChoice, init_store
from tierfs.types import MIB, ROOT_DIRECTORY

WRITERS = 3
READERS = 4
RATE_BYTES_PER_S = 1_000_000
"""Of each writer."""
READ_BYTES = 256 * 1024
READS_AT_A_PLACE = 64
CHUNK_BYTES = 16 * MIB
HIGH_WATERMARK_BYTES = 256 * MIB
SAMPLE_S = 15.0
MEMORY = {"Rss": "RSS", "Anonymous": "anonymous", "Pss_File": "of files"}
"""Lines of smaps_rollup, in KiB, and what they are called here."""


@dataclass
class _Seen:
    memory_kib: list[tuple[int, ...]] = field(default_factory=list)
    bytes_read: int = 0
    wrong: list[str] = field(default_factory=list)


def bench_soak(directory: Path, duration_s: int) -> str:
    """Memory of the mount's process over time, and whether every byte was right."""
    path, mnt, seen, ended = directory / "soak", directory / "mnt", _Seen(), threading.Event()
    init_store(path, ColdChoice())
    os.environ["TIERFS_BACKGROUND__HIGH_WATERMARK_BYTES"] = str(HIGH_WATERMARK_BYTES)
    with app.open_store(path) as store, store_served(path, mnt) as pid:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": str(CHUNK_BYTES), "deletion_lag": "10"})
        threads = [threading.Thread(target=_write, args=(store, f"w{number}", ended)) for number in range(WRITERS)]
        threads += [threading.Thread(target=_read, args=(mnt, number, seen, ended)) for number in range(READERS)]
        for thread in threads:
            thread.start()
        started = time.monotonic()
        while time.monotonic() - started < duration_s:
            time.sleep(SAMPLE_S)
            seen.memory_kib.append(_memory_kib(pid))
        ended.set()
        for thread in threads:
            thread.join()
    return _text(seen, duration_s)


def _text(seen: _Seen, duration_s: int) -> str:
    tenth = max(1, len(seen.memory_kib) // 10)
    parts = [seen.memory_kib[first : first + tenth] for first in range(0, len(seen.memory_kib), tenth)]
    lines = [
        f"### {WRITERS} writers, offload, eviction and {READERS} readers of one mount for {duration_s} s",
        "",
        f"* {seen.bytes_read / 1e9:.1f} GB read; wrong: {seen.wrong or 'none'}",
        f"* memory of the mount in MiB, most in each tenth of the time ({', '.join(MEMORY.values())}): "
        + "; ".join(" ".join(str(max(column) >> 10) for column in zip(*part, strict=True)) for part in parts),
    ]
    return "\n".join(lines) + "\n"


def _write(store: app.Store, name: str, ended: threading.Event) -> None:
    """Append the reference again and again, so that a reader knows the byte at each offset."""
    writer = store.engine.open_writer(name)
    written, started = 0, time.monotonic()
    while not ended.is_set():
        writer.append(REFERENCE)
        written += len(REFERENCE)
        ended.wait(max(0.0, written / RATE_BYTES_PER_S - (time.monotonic() - started)))
    store.engine.close_writer(writer)


def _read(mnt: Path, number: int, seen: _Seen, ended: threading.Event) -> None:
    """Read runs at random places, each compared."""
    chosen, twice = random.Random(number), REFERENCE * 2
    while not ended.is_set():
        name = mnt / f"w{chosen.randrange(WRITERS)}"
        if not name.exists() or not name.stat().st_size:
            ended.wait(1)
            continue
        with name.open("rb", buffering=0) as file:
            at = chosen.randrange(name.stat().st_size)
            for _ in range(READS_AT_A_PLACE):
                data = os.pread(file.fileno(), READ_BYTES, at)
                shift = at % len(REFERENCE)
                if data != (twice * (1 + len(data) // len(REFERENCE)))[shift : shift + len(data)]:
                    seen.wrong.append(f"{name.name} at {at}")
                seen.bytes_read += len(data)
                at += len(data)
                if not data or ended.is_set():
                    break


def _memory_kib(pid: int) -> tuple[int, ...]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines[1:])}
    return tuple(sizes[name] for name in MEMORY)
