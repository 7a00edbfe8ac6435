"""Ledgers on Ceph RGW: offload against raw multipart uploads, cold reads against plain segments, searches."""

from __future__ import annotations

import os
import random
import statistics
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import trio

from tests import verbs
from tests.benchmarks.measuring import GIB, compared, cpu_seconds, heat, seconds, store_served
from tests.benchmarks.workloads import dd
from tests.verbs import fill, random_blocks
from tierfs.app import store as app
from tierfs.base.system.metrics import MetricName
from tierfs.base.words.types import MIB, ReadPriority, Tier
from tierfs.engine.metadata import chains, directories, entries
from tierfs.engine.segments import ledgers
from tierfs.reading.entries import placed_entries
from tierfs.reading.handle import ReadHandle
from tierfs.tiering.ledgers.offload import LedgerOffloader
from tierfs.tiering.objects import ColdTier

LEDGER_BYTES = GIB
ENTRY_BYTES = 1024
BLOCK_BYTES = 64 * MIB
_APPENDED_TOGETHER = 4096

SEARCHED_ENTRIES = 15_013
SEARCHED_BLOCK_BYTES = 16 * MIB
SEARCHES = 16
"""As in Pulsar's test of searches by position: 60 MiB in entries of 2 to 6 KiB."""


def bench_ledgers(path: Path, s3: Any, bucket: str, repetitions: int) -> Iterator[str]:
    """Two tables and a line."""
    with app.open_store(path) as store:
        yield _offloads(store, path, s3, bucket, repetitions)
        name = _ledger(store, LEDGER_BYTES // ENTRY_BYTES)
        fill(store.engine, "raw", random_blocks(LEDGER_BYTES))
        verbs.offload(store)
        verbs.evict(store)
    yield _cold_reads(path, name, repetitions)
    with app.open_store(path) as store:
        yield _searches(store)


def _ledger(store: app.Store, count: int) -> str:
    """A closed ledger of entries of ENTRY_BYTES."""
    with store.metadata.write() as txn:
        name = ledgers.make(txn, "topic")
    writer = store.engine.open_ledger(name)
    for _ in range(count // _APPENDED_TOGETHER):
        block = os.urandom(_APPENDED_TOGETHER * ENTRY_BYTES)
        writer.append_entries([block[at : at + ENTRY_BYTES] for at in range(0, len(block), ENTRY_BYTES)])
    store.engine.close_writer(writer)
    store.engine.seal(name)
    return name


def _offloads(store: app.Store, path: Path, s3: Any, bucket: str, repetitions: int) -> str:
    size = LEDGER_BYTES // 4
    source = path.parent / "upload"
    source.write_bytes(os.urandom(size))

    def raw() -> float:
        def upload() -> None:
            begun = s3.create_multipart_upload(Bucket=bucket, Key="raw")
            parts = []
            with source.open("rb") as file:
                while body := file.read(BLOCK_BYTES):
                    number = len(parts) + 1
                    done = s3.upload_part(
                        Bucket=bucket, Key="raw", UploadId=begun["UploadId"], PartNumber=number, Body=body
                    )
                    parts.append({"PartNumber": number, "ETag": done["ETag"]})
            s3.complete_multipart_upload(
                Bucket=bucket, Key="raw", UploadId=begun["UploadId"], MultipartUpload={"Parts": parts}
            )

        taken = seconds(upload)
        s3.delete_object(Bucket=bucket, Key="raw")
        return taken

    def ours() -> float:
        name = _ledger(store, size // ENTRY_BYTES)
        taken = seconds(lambda: verbs.offload(store, name))
        _delete(store, name)
        return taken

    def plain() -> float:
        fill(store.engine, "plain", random_blocks(size))
        taken = seconds(lambda: verbs.offload(store, "plain"))
        _delete(store, "plain")
        return taken

    title = f"Offload of a ledger of {size // MIB} MiB in entries of 1 KiB, Ceph RGW"
    subjects = {
        "boto3 multipart upload, part by part": raw,
        "tierfs: a plain segment": plain,
        "tierfs: the ledger": ours,
    }
    return compared(title, size, repetitions, subjects)


def _delete(store: app.Store, name: str) -> None:
    """A segment with its objects, at once: the server of a benchmark is small."""
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
        holders = [chains.object_of(txn, chunk) for chunk in chains.chunks(txn, segment.id, Tier.COLD)]
    verbs.delete(store, name, recursive=False)
    for holder in holders:
        store.storage_of(holder.location_id).delete(holder.name)


def _cold_reads(path: Path, name: str, repetitions: int) -> str:
    mnt = path.parent / "mnt"
    used: dict[str, list[float]] = {}

    def read(segment: str) -> float:
        with store_served(path, mnt) as pid:
            heat()
            before = cpu_seconds(pid)
            taken = dd([mnt / segment]).seconds
            used.setdefault(segment, []).append(cpu_seconds(pid) - before)
            return taken

    subjects = {"a plain segment": lambda: read("raw"), "a ledger, entries of 1 KiB": lambda: read(name)}
    table = compared("Cold read of 1 GiB through a mount, Ceph RGW", LEDGER_BYTES, repetitions, subjects)
    cpu = ", ".join(f"{statistics.median(values):.2f}" for values in used.values())
    return f"{table}\nCPU of the daemon, s/GiB: {cpu}\n"


def _searches(store: app.Store) -> str:
    """Binary searches for entries by their time, each entry read by its id: GETs of each, cold and warm."""
    rng = random.Random(5)
    with store.metadata.write() as txn:
        name = ledgers.make(txn, "searched")
    writer = store.engine.open_ledger(name)
    payloads = [
        struct.pack(">Q", 1000 * number) + rng.randbytes(rng.randrange(2048, 6145) - 8)
        for number in range(SEARCHED_ENTRIES)
    ]
    for at in range(0, len(payloads), 1000):
        writer.append_entries(payloads[at : at + 1000])
    store.engine.close_writer(writer)
    store.engine.seal(name)
    work = store.cold_work("benchmark")
    tier: ColdTier = work.cold
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
    LedgerOffloader(store.metadata, store.files, tier, SEARCHED_BLOCK_BYTES).offload(segment.id, uuid4())
    work.publish()
    wanted = [1000 * rng.randrange(SEARCHED_ENTRIES) + 500 for _ in range(SEARCHES)]
    cold = [search(store, name, [one])[0] for one in wanted]
    warm = search(store, name, [wanted[0], *wanted])[1:]
    told = f"cold {statistics.mean(cold):.1f} GETs on average (at most {max(cold)}), warm {statistics.mean(warm):.1f}"
    return f"### Searches by time in a ledger of {SEARCHED_ENTRIES:,} entries, blocks of 16 MiB\n\n* {told}\n"


def search(store: app.Store, name: str, wanted: list[int]) -> list[int]:
    """GETs that each search took: for the first entry that is not older, with what earlier ones left in memory."""
    reader = store.reader()
    with store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
        count = entries.count(txn, segment.id)

    async def time_of(handle: ReadHandle, entry_id: int) -> int:
        (place,) = placed_entries(store.metadata, segment.id, entry_id, entry_id + 1)
        data = bytearray()
        while len(data) < place.range.length_bytes:
            data += await handle.read(place.range.start + len(data), place.range.length_bytes - len(data))
        return int(struct.unpack_from(">Q", data)[0])

    async def run() -> list[int]:
        found = []
        async with reader:
            handle = reader.open(segment.id, priority=ReadPriority.OFFLOADED_ONLY)
            for time_ms in wanted:
                before = _gets(store)
                low, high = 0, count
                while low < high:
                    middle = (low + high) // 2
                    if await time_of(handle, middle) < time_ms:
                        low = middle + 1
                    else:
                        high = middle
                assert low == (time_ms + 999) // 1000
                found.append(_gets(store) - before)
            handle.close()
        return found

    return trio.run(run)


def _gets(store: app.Store) -> int:
    return int(store.metrics.values(MetricName.STORAGE_REQUESTS).get(("cold", "read"), 0))
