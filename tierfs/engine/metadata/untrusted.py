"""Checks of records from a bucket before they are written here, and reading of rows that may be damaged.

Every byte of a bucket may have been chosen by an attacker with write access. Each check raises DataLoss.

`messages` and `message` read rows as protobuf messages, for checks that must get through damaged ones: a message costs
a third of a record, and nothing is refused: a row that cannot be parsed is None.
"""

from __future__ import annotations

import re

from tierfs.base.bytes import recoveries
from tierfs.base.words import names, object_names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.types import (
    CRC_BLOCK_BYTES,
    IN_PLACE,
    MAX_TIME_MS,
    ROOT_DIRECTORY,
    ROOT_INODE,
    PayloadEncoding,
    Tier,
)
from tierfs.engine.metadata import records_pb2 as pb
from tierfs.engine.metadata.records import ChecksumRun, ChunkRecord, DirectoryRecord, ObjectRecord, SegmentRecord

# Limit of numbers that counters hand out; below the 64 bits of a key, so that the next one exists.
MAX_ID = 2**63 - 1

# Limit of an offset in a file (off_t).
MAX_OFFSET = 2**63 - 1

# Limit of an object's length, 64 TiB: more than any server stores (S3: 50 TB), and what claims of it may cost.
MAX_OBJECT_BYTES = 2**46

_MAX_RUN_BLOCKS = 256

# Limit of each sum of a removal, 64 PiB: far more than a directory holds, and sums of many stay below 64 bits.
_MAX_REMOVED = 2**56


# A storage class, as the policy `archive_class` takes it.
_CLASS = re.compile(r"[A-Za-z0-9_.-]{1,64}")

# Begins the errors; a reader of something else words them anew.
DAMAGED = "the bucket's journal is damaged: "


def require(condition: bool, message: str, *subject: object) -> None:
    """Raise DataLoss naming `subject` unless `condition` holds."""
    if not condition:
        raise DataLoss(f"{DAMAGED}{message}{': ' if subject else ''}{' '.join(map(str, subject))}")


def check_id(number: int, what: str) -> None:
    """Raise DataLoss unless a store's counter can have handed out the number."""
    require(0 < number <= MAX_ID, f"{what} with an impossible id", number)


def check_times(*times_ms: int) -> None:
    """Raise DataLoss unless a date can show the times."""
    require(max(times_ms) <= MAX_TIME_MS, "an impossible time", max(times_ms))


def check_component(name: str) -> None:
    """Raise DataLoss unless `name` can be one component of a name."""
    try:
        names.check_component(name)
    except InvalidRequest as exc:
        require(False, f"an impossible name: {exc}")


def check_removal(record: SegmentRecord | DirectoryRecord) -> None:
    """Raise DataLoss unless exactly what has a name in the trash says what it was, and when it is due."""
    removal = record.removal
    hidden = record.parent_id == ROOT_DIRECTORY and names.is_in_trash(record.name)
    if not hidden and not removal.due_ms:
        return
    expected = names.in_trash(removal.due_ms, record.id)
    require(hidden and record.name == expected, "an entry's removal does not match its name", record.id)
    check_times(removal.removed_ms, removal.due_ms)
    sums = removal.segments, removal.directories, removal.bytes, removal.local_bytes, removal.cold_bytes
    most = max(*sums, removal.uncovered_bytes, removal.active_bytes)
    require(most <= _MAX_REMOVED, "a removal of impossible size", record.id)
    try:
        possible = names.split(removal.path) and not names.is_removed(removal.path)
    except InvalidRequest:
        possible = ()
    require(bool(possible), "a removal of an impossible name", record.id)


def check_segment(record: SegmentRecord) -> None:
    """Raise DataLoss unless ids, name and range of a segment are possible."""
    check_id(record.id, "a segment")
    check_id(record.parent_id, "a directory")
    check_id(record.inode, "an inode")
    require(record.inode != ROOT_INODE, "a segment has the root's inode", record.id)
    check_component(record.name)
    check_removal(record)
    require(record.start_offset <= record.length <= MAX_OFFSET, "a segment has an impossible length", record.id)
    check_times(record.created_ms, record.modified_ms, record.changed_ms, record.sealed_ms, record.recovered_ms)
    joins = record.joins
    is_sound = joins.is_sound and all(recoveries.are_sound(join.recoveries) for join in joins)
    require(is_sound, "a segment has impossible joins", record.id)
    require(recoveries.are_sound(record.recoveries), "a segment has impossible recoveries", record.id)
    require(record.writer_epoch <= MAX_ID and record.generation <= MAX_ID, "a counter overflows", record.id)


def check_directory(record: DirectoryRecord) -> None:
    """Raise DataLoss unless ids and name of a directory other than the root are possible."""
    check_id(record.id, "a directory")
    check_id(record.parent_id, "a directory")
    check_id(record.inode, "an inode")
    require(record.id != record.parent_id, "a directory is its own parent", record.id)
    require(record.inode != ROOT_INODE or record.id == ROOT_DIRECTORY, "a directory has the root's inode", record.id)
    check_times(record.created_ms, record.modified_ms)
    check_component(record.name)
    check_removal(record)


def check_chunk(record: ChunkRecord, stored: ObjectRecord | pb.ObjectRecord | None) -> None:
    """Raise DataLoss unless a cold chunk's range fits the segment and its object; a lost one may have no object."""
    record.check()
    require(record.end_offset <= MAX_OFFSET, "a chunk ends after the end of every file", record.start_offset)
    if stored is None:
        require(not record.object_id, "a chunk refers to an unknown object", record.object_id)
        return
    require(stored.tier == Tier.COLD, "a cold chunk refers to a local object", stored.id)
    end = record.object_offset + record.length
    require(end <= stored.length, "a chunk ends after its object", record.start_offset, stored.id)


def check_object(record: ObjectRecord, own_location: int, archive_location: int = 0) -> None:
    """Raise DataLoss unless a cold object's ids, size and names are possible; those of an owned one are ours.

    `archive_location`: that of the store's archive place, 0 for none.
    """
    record.check()
    check_id(record.id, "an object")
    require(record.tier is Tier.COLD, "refers to a local object", record.id)
    check_times(record.created_ms, record.modified_ms, *record.times.written_ms)
    require(record.times.is_sound(record.length), "an object has impossible times of bytes", record.id)
    require(0 < record.length <= MAX_OBJECT_BYTES, "an object has an impossible length", record.id)
    in_place = record.archive_class == IN_PLACE
    own = record.location_id == (archive_location if in_place else own_location)
    require(own or record.foreign, "an object outside the store's location is not marked as foreign", record.id)
    check_object_name(record.name, owned=not record.foreign)
    if record.index_name:
        check_object_name(record.index_name, owned=not record.foreign)
    if record.entries_name:
        check_object_name(record.entries_name, owned=True)
    require(record.stored_length <= MAX_OBJECT_BYTES, "an object has an impossible length", record.id)
    sound = not record.archive_class or is_storage_class(record.archive_class)
    require(sound, "an object in an impossible storage class", record.id)
    if record.encoding.is_ledger:
        check_id(record.segment_id, "a ledger's object with a segment")
        require(
            record.payload_start + record.length <= MAX_OFFSET, "an object ends after the end of every file", record.id
        )


def is_storage_class(name: str) -> bool:
    """Return whether a name can be that of a storage class."""
    return bool(_CLASS.fullmatch(name))


def check_unchunked(record: ObjectRecord | None, own_location: int) -> None:
    """Raise DataLoss unless an object of a ledger without bytes, None for no such object, can be there."""
    if record is None:
        return
    if record.foreign:
        require(0 < record.location_id != own_location, "an adopted ledger in the store's own location", record.name)
    require(record.encoding is not PayloadEncoding.RAW, "a ledger's object without an encoding", record.name)
    require(record.stored_length <= MAX_OBJECT_BYTES, "an object has an impossible length", record.name)
    for name in filter(None, (record.name, record.index_name)):
        check_object_name(name, owned=not record.foreign)


def check_object_name(name: str, *, owned: bool) -> None:
    """Raise DataLoss unless a name is relative without detours, and has a form that tierfs makes if it is ours to
    delete."""
    length_bytes = len(name.encode(errors="surrogatepass"))
    require(0 < length_bytes <= object_names.MAX_BYTES and "\0" not in name, "an object has an impossible name")
    steps = name.split("/")
    require("." not in steps and ".." not in steps and steps[0] != "", "an object's name leaves its location")
    require(not owned or object_names.is_ours(name), "an owned object has a name that is not a tierfs name", name)


def check_run(run: ChecksumRun, stored: ObjectRecord) -> None:
    """Raise DataLoss unless a run of checksums lies inside its object and in one row."""
    run.check()
    require(0 < run.count <= _MAX_RUN_BLOCKS, "a checksum run has an impossible length", stored.id)
    last = run.start + (run.count - 1) * CRC_BLOCK_BYTES
    require(last < stored.length, "a checksum run ends after its object", stored.id, run.start)
    _check_frames(run, stored)


def _check_frames(run: ChecksumRun, stored: ObjectRecord) -> None:
    """Raise DataLoss unless a run has frames of all its blocks inside the stored object, or none if that is plain."""
    if stored.encoding is not PayloadEncoding.ZSTD_FRAMES:
        is_plain = not run.frame_lengths and not run.stored_lengths
        require(is_plain, "a checksum run places frames of a plain object", stored.id)
        return
    from tierfs.engine.metadata import frame_rows  # most rows are of plain objects

    possible = frame_rows.places_frames(run, stored.length, stored.stored_length)
    require(possible, "a checksum run has impossible frames", stored.id, run.start)
