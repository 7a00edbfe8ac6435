"""What is let in at a door: the last value that is, and the first that is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.servers.scripted_http import ETAG
from tierfs import names, object_names, osio, policy, store_paths
from tierfs.checksum import crc32c
from tierfs.chunkstore.http.ranged_get import MAX_HEAD_BYTES, AnsweredOtherwise, HttpOrigin, RangedGet
from tierfs.chunkstore.local_files import ChunkFiles
from tierfs.chunkstore.memory import MemoryStorage
from tierfs.chunkstore.protocol import BufferSource, StoredObject
from tierfs.chunkstore.validate import MARK_NAME, check_name, check_range, is_own, read_source
from tierfs.config import ColdSettings
from tierfs.errors import DataLoss, InvalidRequest, PermissionDenied, TierfsError
from tierfs.journal import cold_identity, epochs
from tierfs.journal.names import MAX_SLOT, entry_slot, slot_name
from tierfs.metadata import changes, untrusted
from tierfs.metadata import records_pb2 as pb
from tierfs.metadata.journal_state import MAX_EPOCH, Removal
from tierfs.metadata.records import (
    RECORD_VERSION,
    ChecksumRun,
    ChunkRecord,
    LocationRecord,
    ObjectRecord,
    SegmentRecord,
)
from tierfs.setup.connect import require_allowed
from tierfs.types import (
    CRC_BLOCK_BYTES,
    ROOT_DIRECTORY,
    DirectoryId,
    Inode,
    LocationId,
    ObjectId,
    SegmentId,
    Tier,
)

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
    changes.parse_entry(changes._HEADER.pack(changes.MAGIC, version, crc32c(payload), len(payload)) + payload, "e")


def parse_flipped(bit: int) -> None:
    data = bytearray(changes.frame(pb.JournalEntry(slot=4)))
    data[-1] ^= bit
    changes.parse_entry(bytes(data), "e")


def frame_of(length: int) -> None:
    """Frame a message of exactly so many bytes."""
    entry = pb.JournalEntry(attempt="a" * (length - 100))
    entry.attempt += "a" * (length - changes._HEADER.size - entry.ByteSize())
    assert len(changes.frame(entry)) == length


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
        lambda length: changes.check_size("o", length),
        changes.MAX_OBJECT_BYTES,
        changes.MAX_OBJECT_BYTES + 1,
    ),
    "a framed message": (frame_of, changes.MAX_OBJECT_BYTES, changes.MAX_OBJECT_BYTES + 1),
    "the version of a frame": (parse_version, RECORD_VERSION, RECORD_VERSION + 1),
    "the bytes of a frame": (parse_flipped, 0, 1),
    "the size of a chunk": (
        lambda size: policy.parse("chunk_bytes", str(size)),
        policy.MAX_OBJECT_BYTES,
        policy.MAX_OBJECT_BYTES + 1,
    ),
    "a smallest chunk": (lambda text: policy.parse("chunk_bytes", text), "1", "0"),
    "a range": (lambda end: check_range(stored_of(8), 0, end), 8, 9),
    "a source": (lambda length: read_source("o", ShortSource(bytes(8)), 0, length), 3, 4),
}


@pytest.mark.parametrize("door", DOORS)
def test_the_last_that_fits_is_let_in_and_the_next_is_not(door: str) -> None:
    enter, last, beyond = DOORS[door]
    enter(last)
    with pytest.raises(TierfsError):
        enter(beyond)


@pytest.mark.parametrize("number", [MAX_SLOT, MAX_SLOT + 1])
def test_a_slot_that_no_owner_reaches_is_no_name_of_a_journal(number: int) -> None:
    assert entry_slot(slot_name(number)) == (number if number == MAX_SLOT else None)


@pytest.mark.parametrize("length", [object_names.MAX_BYTES, object_names.MAX_BYTES + 1])
def test_no_name_of_ours_is_longer_than_a_key(length: int) -> None:
    path = "/".join(["n" * 200] * 3)
    digits = length - len(named(path)) + 32
    name = named(path).replace(f"{1:032x}", "a" * digits)
    assert len(name) == length
    assert object_names.is_ours(name) is (length == object_names.MAX_BYTES)


def test_a_stored_size_of_a_chunk_is_cut_to_what_an_object_holds() -> None:
    assert policy.from_stored("chunk_bytes", str(policy.MAX_OBJECT_BYTES + 1)) == policy.MAX_OBJECT_BYTES


def test_an_object_uses_up_no_epochs() -> None:
    storage = MemoryStorage()
    for epoch in (3, MAX_EPOCH + 1):
        storage.put(f"epochs/{epoch:010d}", BufferSource(b""))
    assert epochs.newest(storage) == 3


def test_a_mark_larger_than_any_is_not_read() -> None:
    storage = MemoryStorage()
    mark = cold_identity.StoreMark("a" * 32)
    cold_identity.write_mark(storage, mark)
    assert cold_identity.read(storage) == mark
    data = b'{"store": "' + b"a" * 32 + b'"}'
    storage.put(MARK_NAME, BufferSource(data.ljust(4097)), create_only=False)
    with pytest.raises(DataLoss, match="4097 bytes"):
        cold_identity.read(storage)


@pytest.mark.parametrize("attempt", ["a", "b"])
@pytest.mark.parametrize("length", [7, 8])
def test_an_object_is_ones_own_by_attempt_and_length(attempt: str, length: int) -> None:
    found = replace(stored_of(length), metadata={"attempt": attempt})
    assert is_own(found, {"attempt": "a"}, 8) is (attempt == "a" and length == 8)


FIELDS = {
    "status": ("206 Partial Content", "200 OK"),
    "range": ("bytes 4-7/", "bytes 5-8/"),
    "length": ("4", "5"),
    "etag": (ETAG, f"{ETAG}x"),
}


@pytest.mark.parametrize("wrong", [None, *FIELDS])
def test_an_answer_over_http_is_the_range_of_the_version_or_nothing(wrong: str | None) -> None:
    status, span, length, etag = (FIELDS[name][name == wrong] for name in FIELDS)
    head = f'HTTP/1.1 {status}\r\nContent-Range: {span}99\r\nContent-Length: {length}\r\nETag: "{etag}"\r\n\r\n'
    get = RangedGet(HttpOrigin("http", "127.0.0.1", 80), "/o", 4, memoryview(bytearray(4)), ETAG)
    if wrong is None:
        assert get.take_head(head.encode())
        return
    with pytest.raises(AnsweredOtherwise):
        get.take_head(head.encode())


@pytest.mark.parametrize("more", [-1, 0])
def test_the_head_of_an_answer_has_a_limit(more: int) -> None:
    get = RangedGet(HttpOrigin("http", "127.0.0.1", 80), "/o", 4, memoryview(bytearray(4)), ETAG)
    head = b"HTTP/1.1 206 Partial Content\r\nX: ".ljust(MAX_HEAD_BYTES + more, b"x")
    if more < 0:
        assert not get.take_head(head)
        return
    with pytest.raises(AnsweredOtherwise):
        get.take_head(head)


@pytest.mark.parametrize("behind", ["", "/../../x", "x"])
def test_a_chunk_file_has_the_form_of_a_name_to_its_end(tmp_path: Path, behind: str) -> None:
    files = ChunkFiles.create(tmp_path / "chunks")
    name = f"00/1-0-{1:016x}"
    os.close(files.create_file(name))
    if behind:
        with pytest.raises(DataLoss, match="would not make"):
            files.length_bytes(name + behind)
    else:
        assert files.length_bytes(name) == 0
    files.close()


@pytest.mark.parametrize("place", ["store", "store/metadata"])
@pytest.mark.parametrize("mode", [0o755, 0o775, 0o757])
def test_a_store_that_others_can_write_is_not_opened(tmp_path: Path, place: str, mode: int) -> None:
    (tmp_path / "store/metadata").mkdir(parents=True)
    (tmp_path / place).chmod(mode)
    if mode == 0o755:
        store_paths.require_trusted(tmp_path / "store")
        return
    with pytest.raises(PermissionDenied, match="by others"):
        store_paths.require_trusted(tmp_path / "store")


@pytest.mark.parametrize("allowed", ["", "1"])
def test_a_directory_of_another_user_is_opened_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    monkeypatch.setenv(store_paths.ALLOW_OTHER_OWNER, allowed)
    store_paths.require_own(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)
    if allowed:
        store_paths.require_own(tmp_path)
        return
    with pytest.raises(PermissionDenied, match="belongs to"):
        store_paths.require_own(tmp_path)


@pytest.mark.parametrize("mode", [0o700, 0o710, 0o701])
def test_a_private_directory_is_the_users_alone(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "private"
    place.mkdir()
    place.chmod(mode)
    if mode == 0o700:
        osio.private_directory(place)
        return
    with pytest.raises(PermissionError, match="others may use it"):
        osio.private_directory(place)


def test_a_lock_file_is_not_opened_through_a_link(tmp_path: Path) -> None:
    os.close(osio.open_or_create(tmp_path / "lock"))
    (tmp_path / "link").symlink_to(tmp_path / "lock")
    with pytest.raises(OSError, match="symbolic links"):
        osio.open_or_create(tmp_path / "link")


@pytest.mark.parametrize("from_journal", [False, True])
@pytest.mark.parametrize("allowed", ["", "s3://b/p"])
def test_no_place_is_used_that_only_a_journal_named(from_journal: bool, allowed: str) -> None:
    location = LocationRecord(id=LocationId(1), url="s3://b/p", from_journal=from_journal)
    settings = ColdSettings(allowed_locations=allowed)
    if from_journal and not allowed:
        with pytest.raises(PermissionDenied, match="named by the bucket's journal"):
            require_allowed(location, settings)
    else:
        require_allowed(location, settings)
