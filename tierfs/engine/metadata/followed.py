"""Table `followed`: which bytes of which file a stream has, for each file that `tierfs follow` appends as it grows.

A row is written in the transaction that makes the append, so that there is never one without the other: a follower that
was killed at any point continues with the first byte that is not in the stream. Rows are found by directory and name of
the stream, as those of `append_keys`: a stream goes on in segments of other ids. A row is a range, not a position, so
that a stream that lost its end says by itself where its file continues. The rows are in no journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, takewhile

from tierfs.base.words import names
from tierfs.base.words.types import ByteRange, DirectoryId, EntryKind
from tierfs.engine.metadata import directories, tables
from tierfs.engine.metadata.followed_range import FollowedRange, FollowedSource
from tierfs.engine.metadata.tables import DIRECTORIES, FOLLOWED, FOLLOWED_SOURCES
from tierfs.engine.metadata.transaction import ReadTransaction, WriteTransaction

# Ranges of one stream, its newest: late lines of a rotated file are read as long as it is among them. A log that is
# rotated every minute, and whose writers keep the old file open for ten, has fewer.
MOST_RANGES = 16

# Further ones, which report a gap: they stay until they are a week old.
MOST_GAPS = 48
GAP_KEPT_MS = 7 * 24 * 3600 * 1000

_END = b"\0"

# Sorts after every row of a stream, after its prefix.
_AFTER_ROWS = tables.u64(tables.MAX_U64) + b"\0"

# Before the keys of ranges with a gap, so that they are found without a look at the others; and of sources. No
# directory has such an id.
_OF_GAPS = tables.u64(tables.MAX_U64)
_OF_SOURCES = tables.u64(tables.MAX_U64 - 1)


def of(txn: ReadTransaction, name: str) -> tuple[FollowedRange, ...]:
    """Return the followed ranges of the stream with this name, in the order of the stream; empty without any.

    A segment that was removed takes its bytes with it, but not the rows: see `held`.
    """
    above, _, stream = name.rpartition("/")
    parent = directories.find(txn, above)
    if parent is None or parent.kind is not EntryKind.DIRECTORY:
        return ()
    return tuple(row for _, row in txn.scan(FOLLOWED, prefix=_prefix(parent.id, stream)))


def held(ranges: Sequence[FollowedRange], length: int) -> tuple[FollowedRange, ...]:
    """Return what of the ranges is below the length of their stream: it may have lost its end, or have been removed."""
    kept: list[FollowedRange] = []
    for each in ranges:
        if each.segment_end <= length:
            kept.append(each)
        elif each.segment_start < length:  # no one has read the bytes before the new end
            end = each.file_start + length - each.segment_start
            kept.append(replace(each, file_end=end, tail_length=0, tail_crc32c=0, unended=False, cursor=""))
    if not kept and ranges and not ranges[0].file_start:
        first = ranges[0]  # the file that was read first is read again from its start
        kept.append(replace(first, file_end=0, segment_start=length, tail_length=0, tail_crc32c=0, unended=False))
    return tuple(kept)


def added(ranges: Sequence[FollowedRange], new: FollowedRange) -> tuple[FollowedRange, ...]:
    """Return the ranges of a stream after an append: the newest one is longer if the new one continues it."""
    if ranges and _continues(ranges[-1], new):
        newest = ranges[-1]
        start = (newest.file_start, newest.segment_start) if newest.file_end else (new.file_start, new.segment_start)
        longer = replace(new, path=newest.path, file_start=start[0], segment_start=start[1], gap=newest.gap or new.gap)
        return (*ranges[:-1], longer)
    return (*ranges, new)


def newest_file(ranges: Sequence[FollowedRange]) -> FollowedRange | None:
    """Return the range that the log's newest file continues: the last one but for late lines of earlier files."""
    return next((each for each in reversed(ranges) if not each.late), None)


def recent(ranges: Sequence[FollowedRange], now_ms: int) -> tuple[FollowedRange, ...]:
    """Return the ranges that are kept of a stream: its newest, that of the newest file, and gaps for a while."""
    older, kept, newest = ranges[:-MOST_RANGES], ranges[-MOST_RANGES:], newest_file(ranges)
    gaps = [each for each in older if each.gap and now_ms - each.committed_ms < GAP_KEPT_MS][-MOST_GAPS:]
    return tuple(each for each in older if each is newest or each in gaps) + tuple(kept)


def _continues(newest: FollowedRange, new: FollowedRange) -> bool:
    same_file = (newest.device, newest.inode, newest.file_end) == (new.device, new.inode, new.file_start)
    same_file = same_file and (newest.late, newest.sender) == (new.late, new.sender)
    if not newest.file_end:
        return same_file  # it has no bytes yet, wherever they go
    return same_file and newest.segment_end == new.segment_start and not new.gap


def note(txn: WriteTransaction, parent_id: int, stream: str, read: FollowedRange, range_: ByteRange) -> None:
    """Write what an append added to a stream, in its transaction; `read` has the place of its bytes in their file.

    The append may begin with bytes that are not of the file.
    """
    prefix = _prefix(parent_id, stream)
    new = replace(read, segment_start=range_.end - (read.file_end - read.file_start), committed_ms=txn.now_ms)
    for key in [key for key, _ in txn.scan_raw(FOLLOWED.name, prefix + tables.u64(range_.start + 1), prefix=prefix)]:
        _delete(txn, key)  # of bytes that the stream has lost
    newest = txn.at_or_before(FOLLOWED, prefix + tables.u64(tables.MAX_U64), prefix=prefix)
    after = added(() if newest is None else held((newest,), range_.start), new)
    if newest is not None and newest.segment_start != after[0].segment_start:
        _delete(txn, prefix + tables.u64(newest.segment_start))
    for each in after:
        if each is not newest:
            txn.put(FOLLOWED, prefix + tables.u64(each.segment_start), each)
            if each.gap:
                txn.put_raw(FOLLOWED.name, _OF_GAPS + prefix + tables.u64(each.segment_start), b"")
    if len(after) > 1:
        _trim(txn, prefix)


def _trim(txn: WriteTransaction, prefix: bytes) -> None:
    rows = [row for _, row in txn.scan(FOLLOWED, prefix=prefix)]
    kept = recent(rows, txn.now_ms)
    for row in rows:
        if row not in kept:
            _delete(txn, prefix + tables.u64(row.segment_start))


def _delete(txn: WriteTransaction, key: bytes) -> None:
    txn.delete(FOLLOWED.name, key)
    txn.delete(FOLLOWED.name, _OF_GAPS + key)


def gaps(txn: ReadTransaction) -> Iterator[tuple[str, FollowedRange]]:
    """Yield each range before which lines may be missing, with the name of its stream; those of the last week."""
    for key, _ in txn.scan_raw(FOLLOWED.name, _OF_GAPS, prefix=_OF_GAPS):
        row = txn.get(FOLLOWED, key[len(_OF_GAPS) :])
        name = _name_of(txn, key[len(_OF_GAPS) : -tables.U64_BYTES])
        if row is not None and name is not None:
            yield name, row


def gap_count(txn: ReadTransaction) -> int:
    """Return the number of these ranges."""
    return sum(1 for _ in txn.scan_raw(FOLLOWED.name, _OF_GAPS, prefix=_OF_GAPS))


def sources(txn: ReadTransaction) -> list[FollowedSource]:
    """Return all sources, by directory; also those of directories that were removed."""
    return [row for _, row in txn.scan(FOLLOWED_SOURCES, prefix=_OF_SOURCES)]


def begin(txn: WriteTransaction, new: Iterable[FollowedSource], first: Iterable[tuple[str, FollowedRange]]) -> None:
    """Record that following sources begins with these files, by their segments: they are read from their start.

    The directories of the segments exist. Files of streams that have rows keep their place, and a source that is
    recorded keeps its time.
    """
    for source in new:
        prefix = _OF_SOURCES + tables.u64(source.directory_id)
        rows = list(txn.scan(FOLLOWED_SOURCES, prefix=prefix))
        key = next((key for key, row in rows if _is_same(row, source)), None)
        if key is None:
            number = tables.read_u64(rows[-1][0][len(prefix) :]) + 1 if rows else 0
            txn.put(FOLLOWED_SOURCES, prefix + tables.u64(number), source)
    for name, each in first:
        above, _, stream = name.rpartition("/")
        prefix = _prefix(directories.must_find(txn, above, "directory").id, stream)
        if next(txn.scan_raw(FOLLOWED.name, prefix, prefix=prefix), None) is None:
            txn.put(FOLLOWED, prefix + tables.u64(each.segment_start), replace(each, committed_ms=txn.now_ms))


def in_background(txn: WriteTransaction, chosen: Iterable[FollowedSource], *, background: bool) -> None:
    """Let the holder of the store follow sources that are recorded, or no more."""
    for key, row in list(txn.scan(FOLLOWED_SOURCES, prefix=_OF_SOURCES)):
        if any(_is_same(row, source) for source in chosen):
            txn.put(FOLLOWED_SOURCES, key, replace(row, background=background))


def _is_same(row: FollowedSource, source: FollowedSource) -> bool:
    ours = (source.directory_id, source.path, source.below, source.sender)
    return (row.directory_id, row.path, row.below, row.sender) == ours


def streams(txn: ReadTransaction, *, after: str = "") -> Iterator[tuple[str, tuple[FollowedRange, ...]]]:
    """Yield the name of each stream that has rows, by directory, with these; the segments of that name may be gone.

    `after`: begin after this stream; with the first one if its directory is gone. Rows of a directory that was removed
    are left out: no name leads to them.
    """
    above, _, stream = after.rpartition("/")
    directory = directories.find(txn, above) if after else None
    start = b"" if directory is None else _prefix(directory.id, stream) + _AFTER_ROWS
    for prefix, rows in _by_stream(txn, start):
        if (name := _name_of(txn, prefix)) is not None:
            yield name, tuple(FOLLOWED.codec.decode(data) for _, data in rows)


def names_of(txn: ReadTransaction) -> Iterator[str]:
    """Yield the name of each stream that has rows, without a look at these."""
    for prefix, _ in _by_stream(txn):
        if (name := _name_of(txn, prefix)) is not None:
            yield name


def _by_stream(txn: ReadTransaction, start: bytes = b"") -> Iterator[tuple[bytes, Iterator[tuple[bytes, bytes]]]]:
    """Return the encoded rows of each stream, with the prefix of their keys."""
    rows_of_all = takewhile(lambda row: row[0] < _OF_SOURCES, txn.scan_raw(FOLLOWED.name, start))
    return groupby(rows_of_all, lambda row: row[0][: -tables.U64_BYTES])


def newest_files(txn: ReadTransaction) -> Iterator[tuple[str, FollowedRange]]:
    """Yield the name of each stream that has rows, with the range that the log's newest file continues."""
    for prefix, rows in _by_stream(txn):
        # A log has up to 64 rows, and the last one is nearly always the one.
        ranges = (FOLLOWED.codec.decode(data) for _, data in reversed(list(rows)))
        newest = next((each for each in ranges if not each.late), None)
        if newest is not None and (name := _name_of(txn, prefix)) is not None:
            yield name, newest


def _name_of(txn: ReadTransaction, prefix: bytes) -> str | None:
    """Return the name of the stream with a prefix; None in a directory that was removed."""
    parent_id, stream = DirectoryId(tables.read_u64(prefix)), prefix[tables.U64_BYTES : -len(_END)].decode()
    if txn.get(DIRECTORIES, tables.u64(parent_id)) is None:
        return None
    path = directories.path_of(txn, parent_id, stream)
    return None if names.is_removed(path) else path


def _prefix(parent_id: int, stream: str) -> bytes:
    return tables.u64(parent_id) + stream.encode() + _END
