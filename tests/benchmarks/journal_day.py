"""A day of one append a second on the journal of a large store: bytes, requests, checkpoints, and a recovery.

The segments are only in the journal, as small ones in packs are: no object of theirs is read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.measuring import seconds
from tests.benchmarks.recovering import _anonymous_bytes
from tierfs.app import store as app
from tierfs.app.recovery import recover
from tierfs.app.setup.create import init_store
from tierfs.base.bytes.progress import Progress
from tierfs.base.words.types import AttemptId, LocationId, ObjectId, SegmentStatus, Tier
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import StoredObject
from tierfs.engine.chunkstore.wrappers import Wrapped
from tierfs.engine.journal.checkpoint import Checkpointer
from tierfs.engine.journal.names import entry_slot, part_of
from tierfs.engine.journal.publish import Publisher
from tierfs.engine.metadata import changes, checksums
from tierfs.engine.metadata.chain_edits import Editor
from tierfs.engine.metadata.records import ChunkRecord, ObjectRecord
from tierfs.engine.metadata.store import MetadataStore
from tierfs.engine.metadata.transaction import WriteTransaction
from tierfs.engine.segments.create import create

_Result = TypeVar("_Result")

SEGMENTS_COUNT = int(os.environ.get("TIERFS_BENCH_SEGMENTS", "100000"))
DAY_S = int(os.environ.get("TIERFS_BENCH_DAY_S", "86400"))
ENTRY_S = 3
"""Between two entries of the journal, as the holder publishes."""
SEGMENT_BYTES = 340
_PACKED = 1000


class Counting(Wrapped):
    """Counts what is sent to the journal, by kind of object."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.open())
        self.requests = Counter[str]()
        self.bytes = Counter[str]()

    def _call(self, verb: str, name: str, function: Callable[[], _Result]) -> _Result:
        self.requests[verb] += verb != "list"
        result = function()
        if verb == "put" and isinstance(result, StoredObject):
            self.bytes[_kind(name)] += result.length_bytes
        return result

    def delete_many(self, names: Sequence[str]) -> bool:
        """Count one request, as S3 has it for up to 1,000 objects."""
        self.requests["delete"] += 1
        for name in names:
            self._inner.delete(name)
        return True

    def list(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """Count a request for each page of 1,000, as S3 has them."""
        number = -1
        for number, item in enumerate(self._inner.list(prefix, after=after)):
            self.requests["list"] += number % 1000 == 0
            yield item
        self.requests["list"] += number < 0


def _kind(name: str) -> str:
    if entry_slot(name) is not None:
        return "entries"
    return "parts" if part_of(name) is not None else "manifests"


def put_pack(txn: WriteTransaction, names: Sequence[str]) -> None:
    """Link sealed segments to a pack that is in no place."""
    attempt = AttemptId(os.urandom(16).hex())
    number = ObjectId(txn.allocate_id())
    pack = ObjectRecord(
        id=number,
        tier=Tier.COLD,
        location_id=LocationId(1),
        name=f"packs/{number:020d}-e1-{attempt}-c{_crc():08x}",
        length=SEGMENT_BYTES * len(names),
        etag=os.urandom(16).hex(),
        crc32c=_crc(),
        store_epoch=1,
        attempt=attempt,
        created_ms=txn.now_ms,
        packed=len(names),
    )
    checksums.put_grid(txn, number, [_crc() for _ in range(-(-pack.length // 131072))])
    linked = []
    for index, name in enumerate(names):
        segment = replace(create(txn, name), length=SEGMENT_BYTES, status=SegmentStatus.SEALED, sealed_ms=txn.now_ms)
        at = index * SEGMENT_BYTES
        chunk = ChunkRecord(
            start_offset=0,
            length=SEGMENT_BYTES,
            object_id=number,
            object_offset=at,
            crc32c=_crc(),
            crc_offset=at,
            crc_length=SEGMENT_BYTES,
        )
        linked.append((Editor(txn, segment).insert(Tier.COLD, chunk, pack).segment, chunk))
        pack = replace(pack, references=index + 1)
    changes.link_pack(txn, pack, linked)


def _crc() -> int:
    return int.from_bytes(os.urandom(4), "big")


def _build(metadata: MetadataStore, publisher: Publisher) -> None:
    for first in range(0, SEGMENTS_COUNT, _PACKED):
        with metadata.write() as txn:
            last = min(SEGMENTS_COUNT, first + _PACKED)
            put_pack(txn, [f"logs/d{number // 1000:05d}/s{number:08d}" for number in range(first, last)])
        if first % (10 * _PACKED) == 0:
            publisher.publish()
    publisher.publish()


def bench_journal_day(directory: Path) -> str:
    """Everything this module says it measures, as markdown."""
    path, cold = directory / "day", directory / "cold"
    cold.mkdir()
    place = Place.parsed(cold.as_uri())
    init_store(path, place)
    with app.open_store(path) as store:
        storage = Counting(place)
        publisher = Publisher(store.metadata, storage)
        checkpointer = Checkpointer(store.metadata, storage, publisher, 1000)
        built = seconds(lambda: _build(store.metadata, publisher))
        began_s = time.process_time()
        checkpointer.checkpoint()
        state_s, state = time.process_time() - began_s, storage.bytes["parts"]
        storage.bytes.clear()
        storage.requests.clear()
        checkpoints = []
        for second in range(0, DAY_S, ENTRY_S):
            for number in range(second, min(DAY_S, second + ENTRY_S)):
                with store.metadata.write() as txn:
                    put_pack(txn, [f"new/d{number // 1000:05d}/s{number:08d}"])
            publisher.publish()
            began_s = time.process_time()
            if checkpointer.checkpoint_if_due():
                checkpoints.append(time.process_time() - began_s)
    written, entries = sum(storage.bytes.values()), storage.bytes["entries"]
    requests = ", ".join(f"{count:,} {verb}" for verb, count in sorted(storage.requests.items()))
    found = _recover(directory / "recovered", cold)
    return "\n".join(
        [
            f"### One append a second for {DAY_S:,} s, beside {SEGMENTS_COUNT:,} segments",
            "",
            f"* built in {built:.0f} s; the state: {state_s:.1f} s of CPU, {state / 1e6:.2f} MB with its copies",
            f"* entries: {entries / 1e6:.2f} MB; parts {storage.bytes['parts'] / 1e6:.2f} MB, manifests "
            f"{storage.bytes['manifests'] / 1e6:.2f} MB: {written / entries:.2f} times the entries",
            f"* requests: {requests}: {sum(storage.requests.values()) / DAY_S:.2f} a second",
            f"* {len(checkpoints)} checkpoints, the longest {max(checkpoints, default=0):.2f} s of CPU",
            f"* recovery of {found['segments']:,.0f} segments: {found['seconds']:.0f} s, "
            f"{found['cpu_s']:.0f} s of CPU, {found['anonymous_bytes'] / 2**20:.0f} MiB",
        ]
    )


def _recover(path: Path, cold: Path) -> dict[str, float]:
    """In a process of its own, whose memory is measured."""
    command = [sys.executable, "-m", "tests.benchmarks.journal_day", str(path), str(cold)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def main() -> None:
    """Recover once, as the command does, and print the figures as JSON."""
    path, cold = map(Path, sys.argv[1:])
    anonymous: list[int] = []
    reports: list[recover.RecoverReport] = []

    def sample(done: Progress) -> None:
        anonymous.append(_anonymous_bytes())

    taken = seconds(lambda: reports.append(recover.recover_store(path, Place.parsed(cold.as_uri()), sample)))
    figures = {"seconds": taken, "cpu_s": time.process_time(), "anonymous_bytes": max(anonymous)}
    print(json.dumps(figures | {"segments": reports[0].segments}))


if __name__ == "__main__":
    main()
