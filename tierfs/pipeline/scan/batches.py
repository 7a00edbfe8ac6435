"""Turns bytes into Arrow batches of whole lines, ledger entries or blocks.

Lines come without their separators, with the offset of each. Entries: a part owns the entries whose payload begins in
its stretch. Blocks begin at multiples of their size. Lines are pure. Measured: pyarrow's split_pattern over blocks of
1 MiB is the quickest way in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierfs.base.words import names
from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.types import MIB, ByteRange
from tierfs.engine.metadata.ledger_records import EntryRun
from tierfs.pipeline.scan.extents import clip
from tierfs.pipeline.scan.fetching import FetchedPiece, ScanFetcher, WantedRequest
from tierfs.pipeline.scan.line_format import Separator
from tierfs.pipeline.scan.planning import Part, Partition

_LF = b"\n"
_CR = b"\r"
_CRLF = b"\r\n"


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines: an array of strings, and optionally of the offset of each line's first byte."""

    values: Any
    offsets: Any


def split(data: bytes, start_offset: int, separator: Separator, *, ended: bool, with_offsets: bool) -> Lines:
    """Return the lines of `data`, which is whole lines; its first byte is the segment's `start_offset`.

    `ended`: the last line has its end, as all others have. Without it, it is not empty.

    Values keep their bytes unchanged: no check for UTF-8.
    """
    pattern, text = _pattern(data, separator)
    values = _split(text, pattern, ended=ended)
    if not with_offsets:
        return Lines(values, None)
    if text is not data:
        starts = _starts_of_any(data, ended=ended)
    else:
        lengths = _lengths(values) + len(pattern)
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return Lines(values, int64s(starts + start_offset))


def int64s(numbers: Any) -> Any:
    """Return an Arrow array of a NumPy one, or of a list.

    Without pyarrow's own conversion: to tell whether it is given a series it imports pandas, which costs a new worker
    of Spark as much as all of tierfs (measured: 0.23 s).
    """
    values = np.ascontiguousarray(numbers, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _lengths(strings: Any) -> Any:
    """Return the bytes of each of `strings`, without pandas, too."""
    lengths = pc.binary_length(strings)
    return np.frombuffer(lengths.buffers()[1], np.int32, len(lengths), 4 * lengths.offset).astype(np.int64)


def one_line(data: bytes, offset: int) -> Lines:
    """Return all of `data` as one line, which begins at an offset of its segment."""
    return Lines(_one_string(memoryview(data)), int64s([offset]))


def _one_string(data: memoryview) -> Any:
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data))


def _pattern(data: bytes, separator: Separator) -> tuple[bytes, bytes]:
    """Return the pattern and the bytes to split, with a single kind of separator if `data` has several."""
    if separator.text is not None:
        return separator.text, data
    if _CR not in data:
        return _LF, data
    pairs = data.count(_CRLF)
    if pairs == data.count(_CR) == data.count(_LF):
        return _CRLF, data
    return _LF, data.replace(_CRLF, _LF).replace(_CR, _LF)


def _split(text: bytes, pattern: bytes, *, ended: bool) -> Any:
    """Return all lines; no line follows a pattern at the end."""
    whole = memoryview(text)[: -len(pattern)] if ended else memoryview(text)
    return pc.split_pattern(_one_string(whole), pattern).flatten()


def _starts_of_any(data: bytes, *, ended: bool) -> Any:
    """Return the offsets of lines that end with LF, CRLF or CR."""
    codes = np.frombuffer(data, np.uint8)
    is_lf = codes == _LF[0]
    ends = is_lf | ((codes == _CR[0]) & ~np.append(is_lf[1:], False))
    places = np.flatnonzero(ends)
    return np.concatenate(([0], (places[:-1] if ended else places) + 1)).astype(np.int64)


def longest(lines: Lines) -> int:
    """Return the bytes of the longest line."""
    return int(pc.max(pc.binary_length(lines.values)).as_py() or 0)


def first_length(lines: Lines) -> int:
    """Return the bytes of the first line, the only one that may have arrived in several blocks."""
    return int(pc.binary_length(lines.values[0]).as_py()) if len(lines.values) else 0


def checked(lines: Lines, segment: str) -> Lines:
    """Return the same lines. Raises DataLoss for the first that is not UTF-8."""
    good = _is_utf8(lines.values)
    if good.all():
        return lines
    bad = int(np.argmin(good))
    raise DataLoss(
        f"segment {segment}: the line at byte {lines.offsets[bad].as_py()} is not UTF-8",
        remedy="set the option encoding, or mode to PERMISSIVE or DROPMALFORMED",
    )


def without_malformed(lines: Lines) -> Lines:
    """Return the lines that are UTF-8."""
    good = _is_utf8(lines.values)
    if good.all():
        return lines
    kept = pa.array(good)
    return Lines(lines.values.filter(kept), None if lines.offsets is None else lines.offsets.filter(kept))


def decoded(lines: Lines, encoding: str, errors: str) -> Lines:
    """Return lines of another encoding as UTF-8. Raises UnicodeDecodeError with errors=strict."""
    values = [value.decode(encoding, errors) for value in lines.values.cast(pa.binary()).to_pylist()]
    return Lines(pa.array(values, pa.string()), lines.offsets)


def _is_utf8(values: Any) -> Any:
    """Return a mask of the values that are UTF-8; quick if all are."""
    try:
        values.validate(full=True)
        return np.ones(len(values), bool)
    except pa.ArrowInvalid:
        return np.array([_decodes(value) for value in values.cast(pa.binary()).to_pylist()])


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# Payload of a batch, unless one entry has more: far below what Arrow's offsets of 32 bits reach.
_BATCH_BYTES = 4 * MIB


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Consecutive entries of one ledger, their payloads back to back."""

    part: int
    ledger_id: int | None
    first_entry_id: int
    start_offset: int
    """Offset of the first payload in the segment."""
    lengths: tuple[int, ...]
    payloads: bytes


@dataclass(frozen=True, slots=True)
class _Batch:
    """Entries of one run that become one batch."""

    first_entry_id: int
    start_offset: int
    lengths: tuple[int, ...]

    @property
    def range(self) -> ByteRange:
        return ByteRange(self.start_offset, self.start_offset + sum(self.lengths))


def read_entries(fetcher: ScanFetcher, partition: Partition) -> Iterator[EntryBatch]:
    """Yield the entries of a partition in batches. Raises InvalidRequest for a segment that is not a ledger."""
    for number, part in enumerate(partition.parts):
        ledger_id = names.ledger_id(part.source.name.rpartition("/")[2])
        batches = list(_batches(part))
        wanted = (WantedRequest(number, extent) for batch in batches for extent in clip(part.extents, batch.range))
        pieces = fetcher.pieces(wanted)
        waiting = b""
        for batch in batches:
            length_bytes = batch.range.length_bytes
            while len(waiting) < length_bytes:
                waiting += bytes(next(pieces).view)
            payloads, waiting = waiting[:length_bytes], waiting[length_bytes:]
            yield EntryBatch(number, ledger_id, batch.first_entry_id, batch.start_offset, batch.lengths, payloads)


def _batches(part: Part) -> Iterator[_Batch]:
    ledger = part.source.ledger
    if ledger is None:
        raise InvalidRequest(
            f"segment {names.printable(part.source.name)} is not a ledger", remedy="read type lines or bytes"
        )
    for run in ledger.runs:
        yield from _batches_of(run, part)


def _batches_of(run: EntryRun, part: Part) -> Iterator[_Batch]:
    """Yield the owned entries of one run, a batch at a time."""
    starts = list(accumulate(run.lengths, initial=run.payload_start))
    owned = [index for index in range(len(run.lengths)) if _is_owned(run.first_entry_id + index, starts[index], part)]
    if not owned:
        return
    index, last = owned[0], owned[-1]  # entries ascend, so those between are owned, too
    while index <= last:
        end = index + 1
        while end <= last and starts[end + 1] - starts[index] <= _BATCH_BYTES:
            end += 1
        yield _Batch(run.first_entry_id + index, starts[index], run.lengths[index:end])
        index = end


def _is_owned(entry_id: int, start: int, part: Part) -> bool:
    """Return whether the part owns an entry; empty entries after the last byte belong to the part that ends there."""
    ledger = part.source.ledger
    assert ledger is not None
    if entry_id < ledger.start_entry_id or (ledger.end_entry_id is not None and entry_id >= ledger.end_entry_id):
        return False
    owned = part.owned
    return owned.start <= start < owned.end or start == owned.end == part.pinned.end


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive bytes of one segment."""

    part: int
    offset: int
    content: bytes


def read_blocks(fetcher: ScanFetcher, partition: Partition, block_bytes: int) -> Iterator[Block]:
    """Yield the bytes of a partition. Blocks end at multiples of `block_bytes` of a segment, and at a part's end."""
    for number, part in enumerate(partition.parts):
        pieces = fetcher.pieces(WantedRequest(number, extent) for extent in clip(part.extents, part.owned))
        waiting = bytearray()
        for window in _windows(part, block_bytes):
            while len(waiting) < window.length_bytes:
                waiting += next(pieces).view
            yield Block(number, window.start, bytes(waiting[: window.length_bytes]))
            del waiting[: window.length_bytes]


def _windows(part: Part, block_bytes: int) -> Iterator[ByteRange]:
    at = part.owned.start
    while at < part.owned.end:
        end = min(part.owned.end, at + block_bytes - at % block_bytes)
        yield ByteRange(at, end)
        at = end


def unpacked(pieces: Iterator[FetchedPiece], codec: str, name: str, block_bytes: int) -> Iterator[bytes]:
    """Yield the decompressed bytes in blocks. Raises DataLoss for other bytes, and what fetching raises."""
    with pa.CompressedInputStream(pa.PythonFile(_Pieces(pieces), mode="r"), codec) as stream:
        while True:
            try:
                block = stream.read(block_bytes)
            except OSError as exc:
                raise DataLoss(
                    f"segment {names.printable(name)} is not whole, or no {codec}: {exc}",
                    remedy="set the option compression to none to read its bytes as lines",
                ) from exc
            if not block:
                return
            yield block


class _Pieces:
    """Fetched pieces as a file that Arrow reads."""

    def __init__(self, pieces: Iterator[FetchedPiece]) -> None:
        self._pieces = pieces
        self._rest = b""
        self.closed = False

    def read(self, size_bytes: int) -> bytes:
        """Return up to so many bytes, none at the end."""
        if not self._rest:
            piece = next(self._pieces, None)
            self._rest = b"" if piece is None else bytes(piece.view)
        data, self._rest = self._rest[:size_bytes], self._rest[size_bytes:]
        return data

    def close(self) -> None:
        """Arrow closes what it has read."""
        self.closed = True
