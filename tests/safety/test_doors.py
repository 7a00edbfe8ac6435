"""What is let in at a door: the last value that is, and the first that is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.safety.refused import refused
from tests.servers.scripted_http import ETAG
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.options import policy
from tierfs.base.options.config import ColdSettings
from tierfs.base.system import osio, store_paths
from tierfs.base.words import names, object_names
from tierfs.base.words.errors import DataLoss, InvalidRequest, PermissionDenied, TierfsError
from tierfs.base.words.types import (
    CRC_BLOCK_BYTES,
    ROOT_DIRECTORY,
    AttemptId,
    DirectoryId,
    Inode,
    LocationId,
    ObjectId,
    SegmentId,
    Tier,
)
from tierfs.engine.chunkstore.http.ranged_get import MAX_HEAD_BYTES, AnsweredOtherwise, HttpOrigin, RangedGet
from tierfs.engine.chunkstore.local_files import ChunkFiles
from tierfs.engine.chunkstore.memory import MemoryStorage
from tierfs.engine.chunkstore.place import Place
from tierfs.engine.chunkstore.protocol import BufferSource, StoredObject
from tierfs.engine.chunkstore.validate import MARK_NAME, check_name, check_range, is_own, read_source
from tierfs.engine.journal import epochs, store_mark
from tierfs.engine.journal.names import MAX_SLOT, entry_slot, slot_name
from tierfs.engine.metadata import frames, untrusted
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.epoch_numbers import MAX_EPOCH
from tierfs.engine.metadata.record_parts import Removal
from tierfs.engine.metadata.records import (
    RECORD_VERSION,
    ChecksumRun,
    ChunkRecord,
    LocationRecord,
    ObjectRecord,
    SegmentRecord,
)
from tierfs.reading import ledger_objects
from tierfs.tiering.packs import format as packs
from tierfs.tiering.packs.format import PackEntry, PackIndex

PACK = f"packs/{1:020d}-e1-{1:032x}-c00000000"
HOLDER = ObjectRecord(id=ObjectId(20), tier=Tier.COLD, location_id=LocationId(1), name=PACK, length=8, etag="e")
SEGMENT = SegmentRecord(id=SegmentId(10), parent_id=DirectoryId(1), name="s", inode=Inode(11), length=8)
CHUNK = ChunkRecord(start_offset=0, length=8, object_id=ObjectId(20))
REMOVAL = Removal(path="s", removed_ms=1, due_ms=5)
REMOVED = replace(SEGMENT, parent_id=ROOT_DIRECTORY, name=names.in_trash(5, 10), removal=REMOVAL)


def named(path: str) -> str:
    return f"segments/{path}/10/chunk-{0:020d}-{8:020d}-e1-{1:032x}-c00000000"


def of_bytes(length: int) -> str:
    """Return a name of components that are all allowed."""
    return "/".join(["n" * 99] * 20)[:length]


def object_of_bytes(length: int) -> str:
    return named("n" * (length - len(named(""))))


def parse_version(version: int) -> None:
    payload = pb.JournalEntry().SerializeToString()
    frames.parse_entry(frames._HEADER.pack(frames.MAGIC, version, crc32c(payload), len(payload)) + payload, "e")


def parse_flipped(bit: int) -> None:
    data = bytearray(frames.frame(pb.JournalEntry(slot=4)))
    data[-1] ^= bit
    frames.parse_entry(bytes(data), "e")


def frame_of(length: int) -> None:
    """Frame a message of exactly so many bytes."""
    entry = pb.JournalEntry(attempt="a" * (length - 100))
    entry.attempt += "a" * (length - frames._HEADER.size - entry.ByteSize())
    assert len(frames.frame(entry)) == length


def check_owned(name: str) -> None:
    untrusted.check_object_name(name, owned=True)


def require_ours(name: str) -> None:
    if not object_names.is_ours(name):
        raise InvalidRequest(name)


def stored_of(length: int) -> StoredObject:
    return StoredObject("o", length, "e", 0)


class ShortSource(BufferSource):
    """A source that holds fewer bytes than it declares."""

    def read(self, offset: int, length_bytes: int) -> bytes:
        """Return the bytes there are."""
        return bytes(super().read(offset, min(length_bytes, 3)))


def must(holds: bool) -> None:
    if not holds:
        raise InvalidRequest("it is not let in")


def ours_of(length: int) -> str:
    path = "/".join(["n" * 200] * 3)
    return named(path).replace(f"{1:032x}", "a" * (length - len(named(path)) + 32))


def held(name: str, data: bytes = b"") -> MemoryStorage:
    storage = MemoryStorage()
    storage.put(name, BufferSource(data))
    return storage


def newest_epoch(epoch: int) -> None:
    must(epochs.newest(held(f"epochs/{epoch:010d}")) == epoch)


def read_mark(length: int) -> None:
    data = b'{"store": "' + b"a" * 32 + b'"}'
    must(store_mark.read(held(MARK_NAME, data.ljust(length))) == store_mark.StoreMark("a" * 32))


def require_own(length: int, attempt: str) -> None:
    must(is_own(replace(stored_of(length), metadata={"attempt": attempt}), {"attempt": "a"}, 8))


def pack_of(*entries: PackEntry, payload: int) -> tuple[bytes, packs.Trailer]:
    data = packs.index_and_trailer(PackIndex("0" * 32, 1, AttemptId("1" * 32), 0, entries), payload)
    return data, packs.parse_trailer(data[-packs.TRAILER_BYTES :], payload + len(data), "p")


def trailer_of_version(version: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "RECORD_VERSION", version)
        data = packs.index_and_trailer(PackIndex("0" * 32, 1, AttemptId("1" * 32), 0, ()), 10)
    must(packs.parse_trailer(data[-packs.TRAILER_BYTES :], 10 + len(data), "p").index.start == 10)


def index_of(length: int) -> None:
    checked = packs._TRAILER.pack(packs.MAGIC, RECORD_VERSION, 10, length, 0, 0)[: packs._CHECKED]
    data = checked + crc32c(checked).to_bytes(4, "big")
    must(packs.parse_trailer(data, 10 + length + packs.TRAILER_BYTES, "p").index.length_bytes == length)


def entries_of(count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "MAX_PACK_ENTRIES", 3)
        entries = tuple(
            PackEntry(SegmentId(number), f"s{number}", 0, 1, number - 1, 0) for number in range(1, 1 + count)
        )
        data, trailer = pack_of(*entries, payload=count)
        must(packs.parse_index(data[: -packs.TRAILER_BYTES], trailer, "p").entries == entries)


FIELDS = {
    "status": ("206 Partial Content", "200 OK"),
    "range": ("bytes 4-7/", "bytes 5-8/"),
    "length": ("4", "5"),
    "etag": (ETAG, f"{ETAG}x"),
}


def ranged_get() -> RangedGet:
    return RangedGet(HttpOrigin("http", "127.0.0.1", 80), "/o", 4, memoryview(bytearray(4)), ETAG)


def answered(wrong: str | None) -> None:
    status, span, length, etag = (FIELDS[name][name == wrong] for name in FIELDS)
    head = f'HTTP/1.1 {status}\r\nContent-Range: {span}99\r\nContent-Length: {length}\r\nETag: "{etag}"\r\n\r\n'
    must(bool(ranged_get().take_head(head.encode())))


DOORS: dict[str, tuple[Callable[[Any], object], Any, Any]] = {
    "a name": (names.split, of_bytes(names.MAX_NAME_BYTES), of_bytes(names.MAX_NAME_BYTES + 1)),
    "a component": (names.split, "n" * names.MAX_COMPONENT_BYTES, "n" * (names.MAX_COMPONENT_BYTES + 1)),
    "a way up": (names.split, "a/...", "a/.."),
    "the name of an object": (check_name, "a/b", "a/\0b"),
    "a key": (require_ours, object_of_bytes(255 + len(named(""))), named("n/../n")),
    "the key of a ledger": (
        require_ours,
        "00000000-0000-0000-0000-000000000000-ledger-1",
        "00000000-0000-0000-0000-000000000000",
    ),
    "an owned name": (check_owned, PACK, "others"),
    "a foreign name": (lambda name: untrusted.check_object_name(name, owned=False), "a/...", "a/../b"),
    "an id": (lambda number: untrusted.check_id(number, "x"), untrusted.MAX_ID, untrusted.MAX_ID + 1),
    "the length of a segment": (
        lambda length: untrusted.check_segment(replace(SEGMENT, length=length)),
        untrusted.MAX_OFFSET,
        untrusted.MAX_OFFSET + 1,
    ),
    "the end of a chunk": (lambda length: untrusted.check_chunk(replace(CHUNK, length=length), HOLDER), 8, 9),
    "the length of an object": (
        lambda length: untrusted.check_object(replace(HOLDER, length=length), 1),
        untrusted.MAX_OBJECT_BYTES,
        untrusted.MAX_OBJECT_BYTES + 1,
    ),
    "the location of an object": (lambda location: untrusted.check_object(HOLDER, location), 1, 2),
    "the block of a checksum": (
        lambda length: untrusted.check_run(
            ChecksumRun(start=CRC_BLOCK_BYTES, crcs=bytes(4)), replace(HOLDER, length=length)
        ),
        CRC_BLOCK_BYTES + 1,
        CRC_BLOCK_BYTES,
    ),
    "the time of a removal": (
        lambda due_ms: untrusted.check_removal(replace(REMOVED, removal=replace(REMOVAL, due_ms=due_ms))),
        5,
        4,
    ),
    "the size of a journal object": (
        lambda length: frames.check_size("o", length),
        frames.MAX_OBJECT_BYTES,
        frames.MAX_OBJECT_BYTES + 1,
    ),
    "a framed message": (frame_of, frames.MAX_OBJECT_BYTES, frames.MAX_OBJECT_BYTES + 1),
    "the version of a frame": (parse_version, RECORD_VERSION, RECORD_VERSION + 1),
    "a version that nobody has written yet": (parse_version, RECORD_VERSION, frames.COMPRESSED_VERSION + 1),
    "the bytes of a frame": (parse_flipped, 0, 1),
    "the size of a chunk": (
        lambda size: policy.parse("chunk_bytes", str(size)),
        policy.MAX_OBJECT_BYTES,
        policy.MAX_OBJECT_BYTES + 1,
    ),
    "a smallest chunk": (lambda text: policy.parse("chunk_bytes", text), "1", "0"),
    "a range": (lambda end: check_range(stored_of(8), 0, end), 8, 9),
    "a source": (lambda length: read_source("o", ShortSource(bytes(8)), 0, length), 3, 4),
    "a slot": (lambda slot: must(entry_slot(slot_name(slot)) == slot), MAX_SLOT, MAX_SLOT + 1),
    "a name of ours": (
        lambda length: require_ours(ours_of(length)),
        object_names.MAX_BYTES,
        object_names.MAX_BYTES + 1,
    ),
    "a stored size of a chunk": (
        lambda size: must(policy.from_stored("chunk_bytes", str(size)) == size),
        policy.MAX_OBJECT_BYTES,
        policy.MAX_OBJECT_BYTES + 1,
    ),
    "an epoch that an object names": (newest_epoch, MAX_EPOCH, MAX_EPOCH + 1),
    "a mark of a store": (read_mark, 4096, 4097),
    "a small object of a ledger": (
        lambda length: ledger_objects.read_small(storage := held("o", bytes(length)), storage.stat("o"), 10),
        10,
        11,
    ),
    "an object of one's own, by its length": (lambda length: require_own(length, "a"), 8, 7),
    "an object of one's own, by its attempt": (lambda attempt: require_own(8, attempt), "a", "b"),
    "the version of a pack": (trailer_of_version, RECORD_VERSION, RECORD_VERSION + 1),
    "the index of a pack": (index_of, packs.MAX_INDEX_BYTES, packs.MAX_INDEX_BYTES + 1),
    "the entries of a pack": (entries_of, 3, 4),
    "the bytes before the end of a head over HTTP": (
        lambda length: must(not ranged_get().take_head(b"HTTP/1.1 206 Partial Content\r\nX: ".ljust(length, b"x"))),
        MAX_HEAD_BYTES - 1,
        MAX_HEAD_BYTES,
    ),
    **{f"the {field} of an answer over HTTP": (answered, None, field) for field in FIELDS},
}


@pytest.mark.parametrize("door", DOORS)
def test_the_last_that_fits_is_let_in_and_the_next_is_not(door: str) -> None:
    enter, last, beyond = DOORS[door]
    enter(last)
    with pytest.raises((TierfsError, AnsweredOtherwise)):
        enter(beyond)


@pytest.mark.parametrize("behind", ["", "/../../x", "x"])
def test_a_chunk_file_has_the_form_of_a_name_to_its_end(tmp_path: Path, behind: str) -> None:
    files, name = ChunkFiles.create(tmp_path / "chunks"), f"00/1-0-{1:016x}"
    os.close(files.create_file(name))
    with refused(behind, DataLoss, "is not a tierfs name"):
        assert files.length_bytes(name + behind) == 0
    files.close()


@pytest.mark.parametrize("place", ["store", "store/metadata"])
@pytest.mark.parametrize("mode", [0o755, 0o775, 0o757])
def test_a_store_that_others_can_write_is_not_opened(tmp_path: Path, place: str, mode: int) -> None:
    (tmp_path / "store/metadata").mkdir(parents=True)
    (tmp_path / place).chmod(mode)
    with refused(mode != 0o755, PermissionDenied, "by other users"):
        store_paths.require_trusted(tmp_path / "store")


@pytest.mark.parametrize("allowed", ["", "1"])
def test_a_directory_of_another_user_is_opened_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    monkeypatch.setenv(store_paths.ALLOW_OTHER_OWNER, allowed)
    store_paths.require_own(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    with refused(not allowed, PermissionDenied, "belongs to"):
        store_paths.require_own(tmp_path)


@pytest.mark.parametrize("mode", [0o700, 0o710, 0o701])
def test_a_private_directory_is_the_users_alone(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with refused(mode != 0o700, PermissionError, "other users have access to it"):
        osio.private_directory(tmp_path)


def test_a_lock_file_is_not_opened_through_a_link(tmp_path: Path) -> None:
    os.close(osio.open_or_create(tmp_path / "lock"))
    (tmp_path / "link").symlink_to(tmp_path / "lock")
    with pytest.raises(OSError, match="symbolic links"):
        osio.open_or_create(tmp_path / "link")


@pytest.mark.parametrize("from_journal", [False, True])
@pytest.mark.parametrize("allowed", ["", "s3://b/p"])
def test_no_place_is_used_that_only_a_journal_named(from_journal: bool, allowed: str) -> None:
    location = LocationRecord(id=LocationId(1), url="s3://b/p", from_journal=from_journal)
    with refused(from_journal and not allowed, PermissionDenied, "is only in the bucket's journal"):
        Place(location, Path(), ColdSettings(allowed_locations=allowed)).require_allowed()


def test_a_files_name_is_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="must be valid UTF-8"):
        names.from_os("bad\udce9")
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode("latin-1"))  # as in such a locale
    assert names.from_os("gr\u00c3\u00b6\u00c3\u009fe") == "gr\u00f6\u00dfe"
