"""Splits bytes into whole lines, as Arrow arrays. Pure.

Lines come without their separators, with the offset of each. Measured: pyarrow's split_pattern over blocks of 1 MiB is
the quickest way in Python; where no values are wanted, NumPy finds ends in two thirds of its time, and counts them in
a third.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierfs.base.bytes.frozen import dataclass
from tierfs.base.words.errors import DataLoss
from tierfs.pipeline.reader.line_format import Separator

_LF = b"\n"
_CR = b"\r"
_CRLF = b"\r\n"


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines: their number, and the arrays that are wanted, of strings and of each line's first byte."""

    count: int
    values: Any
    offsets: Any

    @property
    def nbytes(self) -> int:
        """Return the size of the arrays."""
        return sum(array.nbytes for array in (self.values, self.offsets) if array is not None)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The arrays of lines that a reader uses; without any, lines are only counted."""

    values: bool = True
    offsets: bool = True


def split(data: bytes, start_offset: int, separator: Separator, wanted: Wanted, *, ended: bool) -> Lines:
    """Return the lines of `data`, which is whole lines; its first byte is the segment's `start_offset`.

    `ended`: the last line has its end, as all others have. Without it, it is not empty.

    Values keep their bytes unchanged: no check for UTF-8.
    """
    pattern, text = _pattern(data, separator)
    if wanted.values:
        values = _split(text, pattern, ended=ended)
        if not wanted.offsets:
            return Lines(len(values), values, None)
        starts = _starts_of(values, len(pattern)) if text is data else _starts_of_any(data, ended=ended)
        return Lines(len(values), values, int64s(starts + start_offset))
    if not wanted.offsets:
        return Lines(_count(text, pattern) + (0 if ended else 1), None, None)
    if text is data and len(pattern) > 1:
        starts = _starts_of(_split(text, pattern, ended=ended), len(pattern))
    else:
        starts = _starts_of_any(data, ended=ended) if text is not data else _starts_after(_is(data, pattern), ended)
    return Lines(len(starts), None, int64s(starts + start_offset))


def _count(text: bytes, pattern: bytes) -> int:
    """Return how often a pattern is in `text`. NumPy compares single bytes six times as fast as bytes.count."""
    return int(np.count_nonzero(_is(text, pattern))) if len(pattern) == 1 else text.count(pattern)


def _is(text: bytes, byte: bytes) -> Any:
    """Return a mask of the bytes that are this one."""
    return np.frombuffer(text, np.uint8) == byte[0]


def int64s(numbers: Any) -> Any:
    """Return an Arrow array of a NumPy one, or of a list.

    Without pyarrow's own conversion: to tell whether it is given a series it imports pandas, which costs a new worker
    of Spark as much as all of tierfs (measured: 0.23 s).
    """
    values = np.ascontiguousarray(numbers, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _starts_of(values: Any, end_bytes: int) -> Any:
    """Return the places of lines of which each but the last is followed by so many bytes."""
    places = np.frombuffer(values.buffers()[1], np.int32, len(values), 4 * values.offset)
    return places - places[0] + np.arange(0, len(values) * end_bytes, end_bytes)


def one_line(data: bytes, offset: int) -> Lines:
    """Return all of `data` as one line, which begins at an offset of its segment."""
    return Lines(1, _one_string(memoryview(data)), int64s([offset]))


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
    return _starts_after(is_lf | ((codes == _CR[0]) & ~np.append(is_lf[1:], False)), ended)


def _starts_after(ends: Any, ended: bool) -> Any:
    """Return the places of lines, by a mask of the last byte of each line's end."""
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
        remedy="set the option encoding, or set mode to PERMISSIVE or DROPMALFORMED",
    )


def without_malformed(lines: Lines) -> Lines:
    """Return the lines that are UTF-8."""
    good = _is_utf8(lines.values)
    if good.all():
        return lines
    kept = pa.array(good)
    offsets = None if lines.offsets is None else lines.offsets.filter(kept)
    return Lines(int(good.sum()), lines.values.filter(kept), offsets)


def decoded(lines: Lines, encoding: str, errors: str) -> Lines:
    """Return lines of another encoding as UTF-8. Raises UnicodeDecodeError with errors=strict."""
    values = [value.decode(encoding, errors) for value in lines.values.cast(pa.binary()).to_pylist()]
    return Lines(lines.count, pa.array(values, pa.string()), lines.offsets)


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
