"""Whole compressed objects one after another: the stored form of an object that the server joins of them.

Each of them stays as it was, a section or several: frames, which need not be on the grid of the new object, and their
seek table, which no plain byte is in. `zstd -d` of the whole gives the plain bytes of all.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from tierfs.base.bytes.checksum import Stretch
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words import object_names
from tierfs.base.words.types import MIB, PayloadEncoding
from tierfs.engine.frames.frame_map import FrameMap, is_readable
from tierfs.engine.frames.seek_table import MAX_SECTIONS
from tierfs.engine.metadata import frame_rows
from tierfs.engine.metadata.records import ObjectRecord
from tierfs.engine.metadata.transaction import ReadTransaction

# Objects that a server copies by itself (S3); the bytes of shorter ones pass through this machine.
COPIED_BYTES = 5 * MIB


@dataclass(frozen=True, slots=True)
class JoinedFrames:
    """The stored form of an object that is joined."""

    frames: FrameMap
    """The places of its frames, and of the seek tables between them."""
    crc32c: int
    """The CRC32C of all stored bytes."""
    plain_bytes: int
    length_bytes: int
    """Stored bytes."""


def worth_joining(records: Sequence[ObjectRecord]) -> bool:
    """Return whether a server copies at least half of the stored bytes of objects by itself.

    Else most of them pass through this machine in any case, and as frames of one object they are fewer.
    """
    stored_bytes = sum(record.stored_bytes for record in records)
    copied_bytes = sum(record.stored_bytes for record in records if record.stored_bytes >= COPIED_BYTES)
    return 2 * copied_bytes >= stored_bytes


def joined_frames(txn: ReadTransaction, records: Sequence[ObjectRecord]) -> JoinedFrames | None:
    """Return what the objects become when they are joined; None if that is no object that can be read.

    Raises DataLoss if the frames of one are unknown.
    """
    starts, stored, sums = array("Q", [0]), array("Q", [0]), Stretch()
    end = 0
    for record in records:
        if not _has_sections(record) or record.stored_crc32c is None:
            return None
        if end:  # the seek table of the object before
            starts.append(starts[-1])
            stored.append(end)
        frames, plain_start, stored_start = frame_rows.all_frames(txn, record), starts[-1], end
        starts.extend(plain_start + at for at in frames.starts[1:])
        stored.extend(stored_start + at for at in frames.stored[1:])
        end += record.stored_bytes
        sums = sums.then(Stretch(record.stored_bytes, record.stored_crc32c))
    frames = FrameMap(starts, stored)
    return JoinedFrames(frames, sums.crc32c, starts[-1], end) if _is_readable(frames) else None


def _has_sections(record: ObjectRecord) -> bool:
    """Return whether an object is frames and seek tables, and nothing else; packs have an index as well."""
    return record.encoding is PayloadEncoding.ZSTD_FRAMES and object_names.PACK.fullmatch(record.name) is None


def _is_readable(frames: FrameMap) -> bool:
    """Return whether rows can place the frames, and readers keep the limits of their memory."""
    lengths = frames.lengths
    return (
        lengths.count(0) < MAX_SECTIONS
        and all(map(is_readable, lengths, frames.stored_lengths))
        and frame_rows.crowded_run(frames) is None
    )
