"""A mount that is never at rest, over a cold tier that fails: is every byte right, and does nothing grow?

Writers append a known stream and drop its head; others make, remove and restore segments; commands offload, evict,
consolidate and collect; readers compare what they read through the mount. Everything is bounded by what the store is
told to keep, so that from the second tenth of the time on nothing may grow beyond what TOLERANCES says.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.benchmarks.measuring import store_served
from tests.commands import tierfs
from tests.reality.reference import REFERENCE, reference
from tests.servers.endpoint import S3Endpoint
from tests.servers.faulty import FaultyServer
from tierfs.app import store as app
from tierfs.app.setup.create import init_store
from tierfs.app.verbs import truncate_head
from tierfs.base.words.types import MIB, ROOT_DIRECTORY
from tierfs.engine.chunkstore.place import Place, Server
from tierfs.engine.metadata import policies

WRITERS, READERS = 3, 4
RATE_BYTES_PER_S = 1_000_000
"""Of each writer."""
KEPT_BYTES = 24 * MIB
"""Of each writer's segment; its head is dropped once it has half as much again."""
READ_BYTES, READS_AT_A_PLACE = 256 * 1024, 16
FAULTS = 0.02
"""Share of the requests that fail, and as many are late."""
SAMPLES = 100
PARTS = 10
TOLERANCES = {
    "memory_bytes": 32 * MIB,
    "descriptors": 16,
    "threads": 8,
    "disk_bytes": 64 * MIB,
    "bucket_bytes": 128 * MIB,
}
"""By how much the most of the last tenth of the time may be above the most of the second."""
POLICY = {
    "chunk_bytes": str(4 * MIB),
    "object_bytes": str(16 * MIB),
    "deletion_lag": "5",
    "trash_age": "10",
    "read_priority": "offloaded-first",
}
SETTINGS = """
[read]
budget_bytes = 67108864
[offload]
grace_s = 10
checkpoint_entries = 50
[background]
high_watermark_bytes = 67108864
"""
COMMANDS = (("offload",), ("evict",), ("consolidate",), ("gc", "--delete", "--yes"), ("check",))
COMMAND_EVERY_S = 2.0


@dataclass
class Seen:
    """What was measured, and what went wrong."""

    samples: list[Mapping[str, int]] = field(default_factory=list)
    bytes_read: int = 0
    removals: int = 0
    commands: int = 0
    refused: int = 0
    """Reads and commands that ended in an error, as they may while the cold tier fails."""
    wrong: list[str] = field(default_factory=list)

    def peaks(self) -> list[dict[str, int]]:
        """Return the most of everything in each tenth of the time."""
        count = len(self.samples)
        parts = [self.samples[part * count // PARTS : (part + 1) * count // PARTS] for part in range(PARTS)]
        return [{name: max(sample[name] for sample in part) for name in TOLERANCES} for part in parts]

    def failures(self) -> list[str]:
        """Return what must not be."""
        second, last = self.peaks()[1], self.peaks()[-1]
        grown = [name for name, tolerance in TOLERANCES.items() if last[name] > second[name] + tolerance]
        return [*self.wrong, *(f"{name} grew from {second[name]} to {last[name]}" for name in grown)]

    def text(self, duration_s: float) -> str:
        """Return the report in Markdown."""
        lines = [
            f"{duration_s:.0f} s: {self.bytes_read / 1e9:.1f} GB read, {self.removals} segments removed and restored, "
            f"{self.commands} commands, {self.refused} refusals; wrong: {'; '.join(self.failures()) or 'nothing'}",
            "",
            f"| most in each tenth | {' | '.join(map(str, range(1, PARTS + 1)))} | may grow by |",
            "|---" * (PARTS + 2) + "|",
        ]
        for name, tolerance in TOLERANCES.items():
            unit = MIB if name.endswith("bytes") else 1
            row = [str(peak[name] // unit) for peak in self.peaks()]
            label = name.replace("_bytes", ", MiB")
            lines.append(f"| {label} | {' | '.join(row)} | {tolerance // unit} |")
        return "\n".join(lines) + "\n"


class Soak:
    """One run: a store, a mount, and threads that work on both until it has ended."""

    def __init__(self, directory: Path, endpoint: S3Endpoint, seed: str, faults: float = FAULTS) -> None:
        self.path, self.mnt, self.seed, self.seen = directory / "soak", directory / "mnt", seed, Seen()
        self._endpoint, self._bucket, self._faults = endpoint, endpoint.create_bucket(), faults
        self._ended = threading.Event()
        self._starts = [0] * WRITERS
        """Where each writer's segment begins, before its head is dropped."""

    def run(self, duration_s: float) -> Seen:
        """Work for so long."""
        with FaultyServer(self._endpoint.endpoint_url, self._faults) as proxy:
            place = Place.parsed(f"s3://{self._bucket}/p", Server(proxy.endpoint_url))
            init_store(self.path, place)
            (self.path / "store.toml").write_text(SETTINGS)
            with app.open_store(self.path) as store:
                with store.metadata.write() as txn:
                    policies.put(txn, ROOT_DIRECTORY, POLICY)
                with store_served(self.path, self.mnt) as pid:
                    proxy.begin()
                    self._work(store, pid, duration_s)
            assert tierfs("check", "--read", store=self.path, timeout_s=600, check=False).code == 0
        return self.seen

    def _work(self, store: app.Store, pid: int, duration_s: float) -> None:
        work: list[Callable[[], None]] = [partial(self._write, store, number) for number in range(WRITERS)]
        work += [partial(self._read, number) for number in range(READERS)]
        work += [self._command, self._remove]
        threads = [threading.Thread(target=self._noting(each)) for each in work]
        for thread in threads:
            thread.start()
        started = time.monotonic()
        for number in range(1, SAMPLES + 1):
            self._ended.wait(max(0.0, started + duration_s * number / SAMPLES - time.monotonic()))
            self.seen.samples.append(self._sample(pid))
        self._ended.set()
        for thread in threads:
            thread.join()

    def _noting(self, work: Callable[[], None]) -> Callable[[], None]:
        """A thread that fails is a failure of the run, and ends it."""

        def noted() -> None:
            try:
                while not self._ended.is_set():
                    work()
            except BaseException as exc:
                self.seen.wrong.append(repr(exc))
                self._ended.set()
                raise

        return noted

    def _write(self, store: app.Store, number: int) -> None:
        """Append the reference again and again, so that a reader knows the byte at each offset."""
        name = f"w{number}"
        writer, started = store.engine.open_writer(name), time.monotonic()
        while not self._ended.is_set():
            writer.append(REFERENCE)
            if writer.length - self._starts[number] > KEPT_BYTES * 3 // 2:
                self._starts[number] = writer.length - KEPT_BYTES
                truncate_head(store, name, self._starts[number])
            self._ended.wait(max(0.0, writer.length / RATE_BYTES_PER_S - (time.monotonic() - started)))
        store.engine.close_writer(writer)

    def _read(self, number: int) -> None:
        """Read runs at random places, each compared."""
        chosen = random.Random(f"{self.seed} {number}")
        while not self._ended.is_set():
            writer = chosen.randrange(WRITERS)
            name = self.mnt / f"w{writer}"
            if not name.exists() or name.stat().st_size < READ_BYTES:
                self._ended.wait(1)
                continue
            with name.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                first = max(self._starts[writer], size - KEPT_BYTES // 2)
                at = chosen.randrange(first, size) if first < size else size  # its head was dropped meanwhile
                for _ in range(READS_AT_A_PLACE):
                    at += self._compare(file.fileno(), name.name, at)

    def _compare(self, fd: int, name: str, at: int) -> int:
        try:
            data = os.pread(fd, READ_BYTES, at)
        except OSError:
            self.seen.refused += 1
            return 0
        if data != reference(at, at + len(data)):
            self.seen.wrong.append(f"{name} at {at}")
        self.seen.bytes_read += len(data)
        return len(data)

    def _command(self) -> None:
        for words in COMMANDS:
            done = tierfs(*words, store=self.path, check=False)
            self.seen.commands += 1
            self.seen.refused += done.code != 0
            if done.code == 74:
                self.seen.wrong.append(f"{words}: {done.out}{done.err}")
            self._ended.wait(COMMAND_EVERY_S)

    def _remove(self) -> None:
        """Make a segment, remove and restore it, read it through the mount, and remove it for good."""
        name, data = f"gone/{self.seen.removals}", reference(self.seen.removals, self.seen.removals + MIB)
        tierfs("append", name, store=self.path, stdin=data)
        tierfs("rm", name, "--yes", store=self.path)
        tierfs("restore", name, store=self.path)
        if tierfs("cat", name, store=self.path, check=False).code == 0:
            read = (self.mnt / name).read_bytes()
            if read != data:
                self.seen.wrong.append(f"{name} after its restoration")
        tierfs("rm", name, "--yes", store=self.path)
        self.seen.removals += 1

    def _sample(self, pid: int) -> dict[str, int]:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        client = self._endpoint.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket)
        bucket_bytes = sum(item["Size"] for page in pages for item in page.get("Contents", []))
        client.close()
        return {
            # Pages of files, of LMDB's above all, are the kernel's to take back.
            "memory_bytes": int(status["RssAnon"].split()[0]) * 1024,
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": int(status["Threads"]),
            "disk_bytes": sum(map(_room_of, [*self.path.rglob("*"), *Path(f"/proc/{pid}/fd").iterdir()])),
            "bucket_bytes": bucket_bytes,
        }


def _room_of(path: Path) -> int:
    """Bytes on the disk of a name, or of an open file that has no name any more."""
    try:
        status = path.stat() if path.parent.name == "fd" else path.lstat()
    except FileNotFoundError:  # evicted or closed meanwhile
        return 0
    return 0 if path.parent.name == "fd" and status.st_nlink else status.st_blocks * 512
