"""The place of a segment without a record in its files: one that was recovered, ingested, or appended to by others.

The last bytes of the segment are looked for in the files of its log. Only a place that is the only one counts: the
lines of a log that repeats itself are rather appended twice than passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

from tierfs.app.follow import files
from tierfs.app.follow.earlier_files import EarlierFiles
from tierfs.app.follow.files import OpenFile, Unreadable
from tierfs.app.follow.plan import SeenFile
from tierfs.app.follow.target import LogPlace
from tierfs.app.unpacking import is_compressed
from tierfs.base.bytes.checksum import crc32c
from tierfs.base.words.types import MIB
from tierfs.engine.metadata.followed_range import MAX_PROOF_BYTES, FollowedRange

# Some dozens of lines: a time in one of them makes them unique.
LAST_BYTES = 4096

_READ_BYTES = MIB


def find(last: bytes, place: LogPlace, path: str, earlier: EarlierFiles) -> FollowedRange | None:
    """Return the bytes of a log's file with which a segment ends; None if no file has them, or several places do.

    `last` are the last bytes of the segment, at most LAST_BYTES.
    """
    if not last:
        return None
    is_all = place.start_offset == 0 and len(last) == place.length
    # The bytes at the start of a file are after others in the segment.
    for file in reversed(list(_files_of(path, earlier))):
        try:
            with closing(files.opened(file)) as opened:
                ends = [len(last)] if is_all and opened.read(0, len(last)) == last else list(_ends_of(opened, last))
                if ends:
                    return _range(opened, ends[0], place.length) if len(ends) == 1 else None
        except (OSError, Unreadable):
            continue
    return None


def _files_of(path: str, earlier: EarlierFiles) -> Iterator[SeenFile]:
    directory, name = os.path.split(path)
    for each in earlier.of(directory, name):
        file = files.look_at(os.path.join(directory, each), compressed=is_compressed(each))
        if file is not None:
            yield file
    here = files.look_at(path)
    if here is not None:
        yield here


def _ends_of(file: OpenFile, last: bytes) -> Iterator[int]:
    """Yield the offsets after each place at which a file has these bytes, or begins with the end of them."""
    window, at = b"", 0
    while data := file.read(at, _READ_BYTES):
        if not at:
            yield from _ends_at_start(data, last)
        window += data
        start = window.find(last)
        while start >= 0:
            yield at + len(data) - len(window) + start + len(last)
            start = window.find(last, start + 1)
        at += len(data)
        window = window[-(len(last) - 1) :] if len(last) > 1 else b""


def _ends_at_start(data: bytes, last: bytes) -> Iterator[int]:
    """Yield where a file begins with the whole lines that the segment ends with, after lines of the file before it."""
    line = last.find(b"\n") + 1
    while 0 < line < len(last):
        if data.startswith(last[line:]):
            yield len(last) - line
        line = last.find(b"\n", line) + 1 or len(last)


def _range(file: OpenFile, end: int, length: int) -> FollowedRange:
    look, head = file.look(), file.read(0, MAX_PROOF_BYTES)
    size = min(end, MAX_PROOF_BYTES, length)
    tail = file.read(end - size, size)
    return FollowedRange(
        path=os.fsencode(file.path),
        device=look.device,
        inode=look.inode,
        file_start=end - size,
        file_end=end,
        segment_start=length - size,
        head_length=len(head),
        head_crc32c=crc32c(head),
        tail_length=len(tail),
        tail_crc32c=crc32c(tail),
        modified_ns=look.modified_ns,
        unended=not tail.endswith(b"\n"),
    )
