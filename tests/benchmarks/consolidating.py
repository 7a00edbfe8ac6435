"""Consolidation on Ceph RGW: 64 objects of 8 MiB become objects of 64 and of 512 MiB."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from tests import verbs
from tests.benchmarks.measuring import seconds
from tests.verbs import fill
from tierfs.app import store as app
from tierfs.base.system.metrics import MetricName
from tierfs.base.words.types import MIB, ROOT_DIRECTORY
from tierfs.engine.metadata import policies
from tierfs.tiering.consolidate_command import ConsolidateReport
from tierfs.upkeep.holder.perform import perform
from tierfs.upkeep.holder.verbs import CONSOLIDATE

PIECES = 64
PIECE_BYTES = 8 * MIB
OBJECT_BYTES = (64 * MIB, 512 * MIB)


def bench_consolidate(path: Path) -> str:
    """Rate and cost of compose, read-back, commit and journal together, and of the first two alone."""
    lines = [
        f"### Consolidation, Ceph RGW: {PIECES} objects of {PIECE_BYTES // MIB} MiB in one segment",
        "",
        "| objects of | made | MB/s | compose | read back | uploaded by the client | requests, but for GETs |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_measured(path, object_bytes) for object_bytes in OBJECT_BYTES]
    return "\n".join(lines) + "\n"


def _measured(path: Path, object_bytes: int) -> str:
    name = f"c{object_bytes}"
    _fill(path, name)
    with app.open_store(path) as store:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"object_bytes": str(object_bytes)})
        sent = Requests(store)
        done: list[ConsolidateReport] = []
        taken = seconds(lambda: done.append(_consolidate(store, name)))
        (report,) = done
        compose, read = (_seconds(store, verb) for verb in ("compose", "read"))
    return (
        f"| {object_bytes // MIB} MiB | {report.objects_after} of {report.objects_before} "
        f"| {report.bytes / taken / 1e6:.0f} | {compose:.1f} s | {read:.1f} s | {report.client_bytes} bytes | {sent} |"
    )


def _seconds(store: app.Store, verb: str) -> float:
    """How long calls of a verb took, added up; several may have run at once."""
    wanted = f'{MetricName.STORAGE_SECONDS}_sum{{tier="cold",verb="{verb}"}} '
    lines = store.metrics.exposition().decode().splitlines()
    return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))


class Requests:
    """Counts what a store's S3 client sends; ranged GETs go another way and are not among them."""

    def __init__(self, store: app.Store) -> None:
        self.counts: Counter[str] = Counter()
        location = store.cold_location_id
        assert location is not None
        bare = store.storage_of(location)
        while hasattr(bare, "_inner"):
            bare = bare._inner
        bare.client.meta.events.register("before-send.s3", self._sent)  # type: ignore[attr-defined]

    def _sent(self, request: object, event_name: str, **_: object) -> None:
        self.counts[event_name.rpartition(".")[2]] += 1

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))


def _fill(path: Path, name: str) -> None:
    block = os.urandom(PIECE_BYTES)
    with app.open_store(path) as store:
        with store.metadata.write() as txn:
            policies.put(txn, ROOT_DIRECTORY, {"chunk_bytes": str(PIECE_BYTES), "object_bytes": str(PIECE_BYTES)})
        fill(store.engine, name, (block[number:] + block[:number] for number in range(PIECES)))
        verbs.offload(store, name)
        verbs.evict(store, name, force=True)


def _consolidate(store: app.Store, name: str) -> ConsolidateReport:
    return perform(store, CONSOLIDATE, name)
