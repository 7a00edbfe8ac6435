"""Tasks that check copies find what `check --read` finds, of each copy by itself."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests import verbs
from tests.mount.conftest import append
from tests.pipeline.reader.reading import fill, store_of
from tierfs.app import store as app
from tierfs.base.bytes import ranges
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.types import ByteRange, Tier
from tierfs.engine.metadata import chains, directories
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.segments.ledgers import make
from tierfs.pipeline.reader.extents import PlaceConnections, ScannedStore
from tierfs.pipeline.reader.scrub_waves import wanted_segments, waves
from tierfs.pipeline.reader.scrubbing import CopyChecks, CopyPiece, CopyReport, joined, report_of
from tierfs.pipeline.reader.selection import place_of
from tierfs.upkeep.check.scrub.copy_reader import Fault
from tierfs.upkeep.check.scrub.scrub import Scrubber
from tierfs.upkeep.check.scrub.verify import DeepCheck

BOTH = random.Random(1).randbytes(1_000_000)
SMALL = [random.Random(number).randbytes(1000) for number in range(9)]
ENTRIES = [random.Random(number).randbytes(5000) for number in range(100)]

Bad = list[tuple[str, Tier, ByteRange]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[app.Store]:
    """A segment in both tiers with a local tail, a pack of small ones, and a cold ledger."""
    with store_of(tmp_path / "store", chunk_bytes=1 << 18, object_bytes=1 << 19) as opened:
        fill(opened, BOTH, name="logs/both")
        for number, data in enumerate(SMALL):
            fill(opened, data, name=f"small/{number}", seal=True)
        verbs.offload(opened)
        append(opened, "logs/both", b"tail")
        yield opened


def reports(store: app.Store, *paths: str, partition_bytes: int = 1 << 20, partitions: int = 2) -> list[CopyReport]:
    """Return the reports of tasks, whose work is pickled as on its way to executors."""
    segments, _ = wanted_segments(store.metadata, paths)
    with store.metadata.read() as txn:
        place = place_of(txn, str(store.path), store.settings.cold)
    found = []
    for wave in waves(store.metadata, segments, partition_bytes, partitions):
        found.append(CopyReport(faults=wave.faults))
        for partition in wave.partitions:
            found.append(report_of_task(place, partition))
    return found


def report_of_task(place: ScannedStore, partition: Sequence[CopyPiece]) -> CopyReport:
    """One task, which leaves nothing open."""
    place, partition = pickle.loads(pickle.dumps((place, partition)))
    connections = PlaceConnections()
    try:
        return report_of(CopyChecks(place, connections, partition).run())
    finally:
        if (metadata := connections.metadata(place)) is not None:
            metadata.close()


def bad_bytes(store: app.Store) -> Bad:
    return merged((fault.segment, fault.tier, fault.range) for report in reports(store) for fault in report.faults)


def merged(found: Iterable[tuple[str, Tier, ByteRange]]) -> Bad:
    """The same bytes with neighbouring ranges as one."""
    by_copy: dict[tuple[str, Tier], list[ByteRange]] = {}
    for name, tier, span in found:
        by_copy.setdefault((name, tier), []).append(span)
    return [(*copy, span) for copy, spans in sorted(by_copy.items()) for span in ranges.union(spans)]


def deep_bytes(store: app.Store) -> Bad:
    """The same by the check."""
    scrubber = Scrubber(store.metadata, store.files, store.storage_of)
    return merged(
        (found.subject, found.place.tier, found.range)
        for found in DeepCheck(store.metadata, scrubber, Meter()).run()
        if found.place is not None and found.place.tier is not None and found.range is not None
    )


def cold_ledger(store: app.Store, payloads: Sequence[bytes] = ENTRIES) -> str:
    with store.metadata.write() as txn:
        name = make(txn, "topic")
    writer = store.engine.open_ledger(name)
    writer.append_entries(payloads)
    store.engine.close_writer(writer)
    store.engine.seal(name)
    verbs.offload(store, name)
    verbs.evict(store, name, force=True)
    return name


def holder_of(store: app.Store, name: str, tier: Tier, offset: int) -> tuple[ObjectRecord, int]:
    with store.metadata.read() as txn:
        chunk = chains.chunk_at(txn, directories.segment_by_name(txn, name).id, tier, offset)
        assert chunk is not None
        return chains.object_of(txn, chunk), offset - chunk.start_offset + chunk.object_offset


def file_of(store: app.Store, holder: ObjectRecord) -> Path:
    return (store.files.root if holder.tier is Tier.LOCAL else store.path / "cold") / holder.name


def flip(store: app.Store, name: str, tier: Tier, offset: int) -> None:
    holder, at = holder_of(store, name, tier, offset)
    path = file_of(store, holder)
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def test_all_copies_are_read_and_right(store: app.Store) -> None:
    found = reports(store)
    small = sum(map(len, SMALL))
    assert sum(report.local_bytes for report in found) == len(BOTH) + small + len(b"tail")
    assert sum(report.cold_bytes for report in found) == len(BOTH) + small
    assert [report.faults for report in found if report.faults] == []
    found = reports(store, "small/1", "small/2")
    assert sum(report.cold_bytes for report in found) == len(SMALL[1]) + len(SMALL[2]), "only what was asked for"


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("name", ["logs/both", "small/7"])
def test_a_bad_bit_is_found_in_the_copy_that_has_it(store: app.Store, name: str, tier: Tier) -> None:
    flip(store, name, tier, 500)
    found = bad_bytes(store)
    assert {(segment, where) for segment, where, _ in found} == {(name, tier)}
    assert found == deep_bytes(store)


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("damage", ["missing", "short", "many bits"])
def test_what_is_bad_is_what_check_finds(store: app.Store, tier: Tier, damage: str) -> None:
    holder, _ = holder_of(store, "logs/both", tier, 600_000)
    path = file_of(store, holder)
    path.chmod(0o600)
    if damage == "missing":
        path.unlink()
        faults = [fault for report in reports(store) for fault in report.faults]
        assert {fault.fault for fault in faults} == {Fault.MISSING}
        assert len(list(joined(faults))) == 1, "neighbouring ones are one"
    elif damage == "short":
        os.truncate(path, holder.length // 2)
    else:
        numbers = random.Random(7)
        for _ in range(12):
            flip(store, "logs/both", tier, numbers.randrange(len(BOTH)))
        flip(store, "small/3", Tier.COLD, 1)
    assert bad_bytes(store) == deep_bytes(store) != []


def test_payloads_of_a_cold_ledger_are_read_between_their_frames(store: app.Store) -> None:
    name = cold_ledger(store)
    assert sum(report.cold_bytes for report in reports(store, name)) == len(b"".join(ENTRIES))
    assert bad_bytes(store) == []
    path = file_of(store, holder_of(store, name, Tier.COLD, 0)[0])
    data = bytearray(path.read_bytes())
    data[data.index(ENTRIES[50]) + 1] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    assert bad_bytes(store) == deep_bytes(store) != []


def test_local_copies_that_are_not_seen_are_not_good(store: app.Store, tmp_path: Path) -> None:
    segments, _ = wanted_segments(store.metadata, ["logs"])
    with store.metadata.read() as txn:
        place = place_of(txn, str(tmp_path / "elsewhere"), store.settings.cold)
    (wave,) = waves(store.metadata, segments)
    local = [one for one in wave.partitions[0] if one.placed.object.tier is Tier.LOCAL]
    report = report_of_task(place, local)
    assert (report.local_bytes, report.unseen_bytes) == (0, len(BOTH) + len(b"tail"))
    assert {fault.fault for fault in report.faults} == {Fault.UNSEEN}
