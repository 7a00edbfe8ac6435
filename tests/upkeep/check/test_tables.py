"""Seek tables and indexes of packs: damage is found while the rows are there, and the object is made anew."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests import verbs
from tests.copied import copy_tier
from tests.doubles.scripted_storage import ScriptedStorage
from tests.stores import TestStore
from tests.upkeep.check import checked
from tests.upkeep.check.checked import append, read
from tests.upkeep.check.damage import flip
from tests.upkeep.check.damaged_bytes import cut
from tests.upkeep.check.looking import deep_findings
from tierfs.app.check import verify
from tierfs.app.repair_tools import tools
from tierfs.app.setup.create import init_store
from tierfs.app.store import Store, open_store
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.bytes.progress import Meter
from tierfs.base.words.types import MIB, ROOT_DIRECTORY, Tier
from tierfs.engine.frames.seek_table import FOOTER_BYTES, read_sections
from tierfs.engine.metadata import chains, checksums, directories, policies
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.tables import OBJECTS
from tierfs.tiering import joined_frames
from tierfs.upkeep.check.findings import Kind, Severity
from tierfs.upkeep.check.repair.copies import Mended
from tierfs.upkeep.check.repair.mender import Mender
from tierfs.upkeep.check.scrub.scrub import Scrubber
from tierfs.upkeep.check.scrub.tables import ObjectTables
from tierfs.upkeep.check.scrub.verify import DeepCheck
from tierfs.upkeep.holder.perform import perform
from tierfs.upkeep.holder.verbs import CONSOLIDATE

POLICY = {"chunk_bytes": str(MIB), "object_bytes": str(4 * MIB), "compression": "zstd"}
LARGE, SMALL = 3 * MIB, 5000
NAMES = ("alone", "joined", "p/a", "p/b", "q/a", "q/b")

# Of a seek table: the stored and the plain bytes of a frame.
_ENTRY_BYTES = 8

run_check = partial(checked.run_check, deep=True)


def text(name: str) -> bytes:
    """Bytes that compress to half."""
    size = SMALL if "/" in name else LARGE
    return random.Random(name).randbytes(size).translate(b"abcdefgh12345678" * 16)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All is cold only: an object, one of two sections, a compressed pack, and a plain one."""
    path = tmp_path_factory.mktemp("origin") / "store"
    init_store(path)
    with open_store(path) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined_frames, "COPIED_BYTES", 1)
        set_policy(store, POLICY)
        append(store, "alone", text("alone"), seal=True)
        half = LARGE // 2 + 1
        for part in (text("joined")[:half], text("joined")[half:]):
            append(store, "joined", part)
            verbs.offload(store)
        store.engine.seal("joined")
        perform(store, CONSOLIDATE, "joined", {})
        for directory, compression in (("p", "zstd"), ("q", "off")):
            set_policy(store, POLICY | {"compression": compression})
            for name in (f"{directory}/a", f"{directory}/b"):
                append(store, name, text(name), seal=True)
            verbs.offload(store)
        set_policy(store, POLICY)
        verbs.evict(store)
    return path


def set_policy(store: Store | TestStore, values: dict[str, str]) -> None:
    with store.metadata.write() as txn:
        policies.put(txn, ROOT_DIRECTORY, values)


@pytest.fixture
def path(origin: Path, tmp_path: Path) -> Path:
    """A store of each test's own."""
    return shutil.copytree(origin, tmp_path / "store")


def holder_of(path: Path, name: str) -> tuple[ObjectRecord, Path]:
    """The one object of a segment, and its file."""
    with open_store(path) as store, store.metadata.read() as txn:
        segment = directories.segment_by_name(txn, name)
        (chunk,) = chains.chunks(txn, segment.id, Tier.COLD)
        record = chains.object_of(txn, chunk)
        return record, store.paths.cold / record.name


def tables_of(file: Path) -> list[int]:
    """Where the seek tables of an object end."""
    data = file.read_bytes()
    sections = read_sections(lambda start, end: data[start:end], len(data), 1 << 16)
    return [section.end_offset for section in sections]


Do = Callable[[Path], None]


def swap_sizes(file: Path) -> None:
    """Two frames have changed places in the seek table, which agrees with itself."""
    data = bytearray(file.read_bytes())
    first = len(data) - FOOTER_BYTES - 2 * _ENTRY_BYTES
    entries = data[first : first + _ENTRY_BYTES], data[first + _ENTRY_BYTES : -FOOTER_BYTES]
    assert entries[0] != entries[1]
    data[first:-FOOTER_BYTES] = entries[1] + entries[0]
    damaged_file(file, bytes(data))


def damaged_file(file: Path, data: bytes) -> None:
    status = file.stat()
    file.chmod(0o600)
    file.write_bytes(data)
    file.chmod(status.st_mode)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def flip_between(file: Path) -> None:
    first, _ = tables_of(file)
    flip(file, first - FOOTER_BYTES - _ENTRY_BYTES)


PLACES: dict[str, tuple[str, Do]] = {
    "the end of a seek table": ("alone", lambda file: flip(file, -1)),
    "a size in a seek table": ("alone", lambda file: flip(file, -FOOTER_BYTES - _ENTRY_BYTES)),
    "sizes in a seek table": ("alone", swap_sizes),
    "a seek table between frames": ("joined", flip_between),
    "the index of a compressed pack": ("p/a", lambda file: flip(file, tables_of(file)[-1] - 100)),
    "the seek table of a compressed pack": ("p/b", lambda file: flip(file, -1)),
    "the index of a plain pack": ("q/a", lambda file: flip(file, -60)),
    "the trailer of a plain pack": ("q/b", lambda file: flip(file, -1)),
}


@pytest.mark.parametrize("place", PLACES)
def test_damage_that_only_a_recovery_would_meet_is_found_and_mended(path: Path, place: str) -> None:
    name, damage = PLACES[place]
    assert run_check(path)[0] == []
    record, file = holder_of(path, name)
    damage(file)
    (said,), summary = run_check(path)
    finding = said.finding
    assert (finding.kind, finding.severity, finding.object_id) == (Kind.TABLES, Severity.DAMAGE, record.id)
    assert record.name in finding.subject
    assert (summary.damaged, summary.lost) == (1, 0)
    assert run_check(path, deep=False)[0] == []
    ((said,), summary) = run_check(path, repair=True)
    assert (said.finding.kind, said.mended, summary.damaged) == (Kind.TABLES, True, 0), said
    assert run_check(path)[0] == []
    new, _ = holder_of(path, name)
    assert new.name != record.name
    assert new.encoding is record.encoding or name.startswith("q/")
    with open_store(path) as store:
        for each in NAMES:
            assert read(store, each) == text(each)
        with store.metadata.read() as txn:
            assert record.id not in {row.id for _, row in txn.scan(OBJECTS)}
            assert txn.store.journal.published_sequence == txn.store.next_outbox - 1
        assert file.exists()  # readers that hold the old layout finish


@pytest.mark.parametrize("place", PLACES)
def test_a_segment_names_the_damaged_tables_of_its_objects(path: Path, place: str) -> None:
    """And its bytes are right, and so are segments that have no byte in them."""
    name, damage = PLACES[place]
    record, file = holder_of(path, name)
    damage(file)
    with open_store(path) as store:
        verified = {each.name: each for each in verify(store, "", lambda _: None)}
        shared = {each for each in NAMES if holder_of(path, each)[0].name == record.name}
    assert {each.name for each in verified.values() if not each.ok} == shared
    for each in shared:
        assert [table.name for table in verified[each].tables] == [record.name]
        assert (verified[each].bad, verified[each].crc32c) == ([], crc32c(text(each)))


def test_the_table_of_a_pack_is_looked_at_once_for_all_its_segments(path: Path) -> None:
    looked: list[str] = []
    with open_store(path) as store, pytest.MonkeyPatch.context() as patch:
        defect = ObjectTables.defect
        patch.setattr(ObjectTables, "defect", lambda self, record: looked.append(record.name) or defect(self, record))
        assert all(each.ok for each in verify(store, "", lambda _: None))
    assert sorted(looked) == sorted({holder_of(path, name)[0].name for name in NAMES})


def test_a_wrong_byte_on_the_wire_is_no_damaged_table(store: TestStore) -> None:
    set_policy(store, POLICY)
    for name in ("alone", "p/a", "p/b"):
        store.append(name, text(name), seal=True)
    store.offload()
    store.evict()
    cold = ScriptedStorage(store.cold)
    store.cold = cold
    assert deep_findings(store) == []
    reads = Counter(each.name for each in cold.reads)
    assert len(reads) == 2
    for name, count in reads.items():
        cold.reads.clear()
        cold.damage(-1, on=count, of=name)  # the table is read last
        assert deep_findings(store) == []
        assert Counter(each.name for each in cold.reads) == reads + Counter([name])
        cold.behave()


def test_a_copied_tier_has_its_tables(store: TestStore) -> None:
    set_policy(store, POLICY)
    store.append("alone", text("alone"), seal=True)
    store.offload()
    store.evict()
    copy_tier(store.cold)
    assert deep_findings(store) == []


def test_an_object_that_is_gone_or_short_is_the_finding_of_another_check(path: Path) -> None:
    holder_of(path, "p/a")[1].unlink()
    _, file = holder_of(path, "alone")
    cut(file, file.stat().st_size - 5)
    assert Kind.TABLES not in {one.finding.kind for one in run_check(path)[0]}


def test_suspect_bytes_stay_in_an_object_and_lost_ones_do_not_ask_for_a_new_one(path: Path) -> None:
    record, file = holder_of(path, "q/a")
    flip(file, -1)
    flip(file, 100)
    found = {one.finding.kind: one for one in run_check(path)[0]}
    assert found.keys() == {Kind.BYTES, Kind.TABLES}
    said, _ = run_check(path, repair=True)
    assert {one.finding.kind: one.mended for one in said} == {Kind.BYTES: True, Kind.TABLES: True}
    left, summary = run_check(path)
    assert {one.finding.kind for one in left} == {Kind.LOST}
    assert summary.damaged == 0
    with open_store(path) as store:
        assert read(store, "q/b") == text("q/b")
        with store.metadata.read() as txn:
            assert record.id in {row.id for _, row in txn.scan(OBJECTS)}


def test_rows_without_frames_accuse_no_table(path: Path) -> None:
    record, _ = holder_of(path, "alone")
    with open_store(path) as store, store.metadata.write() as txn:
        checksums.delete(txn, record.id)
    assert Kind.TABLES not in {one.finding.kind for one in run_check(path)[0]}


def test_a_table_that_was_put_back_before_the_repair_leaves_the_object(path: Path) -> None:
    record, file = holder_of(path, "alone")
    whole = file.read_bytes()
    flip(file, -1)
    with open_store(path) as store:
        (found,) = DeepCheck(store.metadata, Scrubber(store.metadata, store.files, store.storage_of), Meter()).run()
        damaged_file(file, whole)
        assert [done for _, done in Mender(tools(store, lambda *_: False)).run([found])] == [Mended()]
    assert holder_of(path, "alone")[0].id == record.id
