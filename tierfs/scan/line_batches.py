"""Whole lines as Arrow arrays: values without their separators, and where each begins. Pure.

Measured: pyarrow's split_pattern over blocks of 1 MiB is the quickest way that Python has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierfs.errors import DataLoss, InvalidRequest
from tierfs.scan.separators import Separator

_LF = b"\n"
_CR = b"\r"
_CRLF = b"\r\n"
UTF_8 = "utf-8"


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines: an array of strings, and of the offset of each line's first byte if that is wanted."""

    values: Any
    offsets: Any


def split(data: bytes, start_offset: int, separator: Separator, *, ended: bool, with_offsets: bool) -> Lines:
    """The lines of `data`, which is whole lines; its first byte is the segment's `start_offset`.

    `ended`: the last line has its end, as all others have. Without it, it is not empty.

    Values have the bytes as they are: nothing checks that they are UTF-8.
    """
    pattern, text = _pattern(data, separator)
    values = _split(text, pattern, ended=ended)
    if not with_offsets:
        return Lines(values, None)
    if text is not data:
        starts = _starts_of_any(data, ended=ended)
    else:
        lengths = np.asarray(pc.binary_length(values)).astype(np.int64) + len(pattern)
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return Lines(values, pa.array(starts + start_offset, pa.int64()))


def _pattern(data: bytes, separator: Separator) -> tuple[bytes, bytes]:
    """What to split by, and the bytes to split: with one kind of separator if `data` has several."""
    if separator.text is not None:
        return separator.text, data
    if _CR not in data:
        return _LF, data
    pairs = data.count(_CRLF)
    if pairs == data.count(_CR) == data.count(_LF):
        return _CRLF, data
    return _LF, data.replace(_CRLF, _LF).replace(_CR, _LF)


def _split(text: bytes, pattern: bytes, *, ended: bool) -> Any:
    """All lines; behind a pattern at the end no line comes."""
    whole = memoryview(text)[: -len(pattern)] if ended else memoryview(text)
    one = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(whole)], np.int32)), pa.py_buffer(whole))
    return pc.split_pattern(one, pattern).flatten()


def _starts_of_any(data: bytes, *, ended: bool) -> Any:
    """Where lines begin that end with LF, CRLF or CR."""
    codes = np.frombuffer(data, np.uint8)
    is_lf = codes == _LF[0]
    ends = is_lf | ((codes == _CR[0]) & ~np.append(is_lf[1:], False))
    found = np.flatnonzero(ends)
    return np.concatenate(([0], (found[:-1] if ended else found) + 1)).astype(np.int64)


def longest(lines: Lines) -> int:
    """Bytes of the longest line."""
    return int(pc.max(pc.binary_length(lines.values)).as_py() or 0)


def first_length(lines: Lines) -> int:
    """Bytes of the first line: the only one that may have come in several blocks."""
    return int(pc.binary_length(lines.values[0]).as_py()) if len(lines.values) else 0


def checked(lines: Lines, segment: str) -> Lines:
    """The same lines. Raises DataLoss for the first that is not UTF-8."""
    good = _is_utf8(lines.values)
    if good.all():
        return lines
    bad = int(np.argmin(good))
    raise DataLoss(
        f"segment {segment}: the line at byte {lines.offsets[bad].as_py()} is not UTF-8",
        remedy="set the option encoding, or mode to PERMISSIVE or DROPMALFORMED",
    )


def without_malformed(lines: Lines) -> Lines:
    """The lines that are UTF-8."""
    good = _is_utf8(lines.values)
    if good.all():
        return lines
    kept = pa.array(good)
    return Lines(lines.values.filter(kept), None if lines.offsets is None else lines.offsets.filter(kept))


def decoded(lines: Lines, encoding: str, errors: str) -> Lines:
    """Lines of another encoding as UTF-8. Raises UnicodeDecodeError with errors=strict."""
    values = [value.decode(encoding, errors) for value in lines.values.cast(pa.binary()).to_pylist()]
    return Lines(pa.array(values, pa.string()), lines.offsets)


def require_encoding(encoding: str) -> str:
    """The encoding's canonical name. Raises InvalidRequest where LF is not the byte that it is in ASCII."""
    try:
        same = "\r\n".encode(encoding) == _CRLF
    except LookupError as exc:
        raise InvalidRequest(
            f"{encoding} is no encoding that is known here", remedy="set encoding, such as utf-8"
        ) from exc
    if not same:
        raise InvalidRequest(
            f"lines of {encoding} cannot be found by their bytes", remedy="read type bytes, or the path of a mount"
        )
    return encoding.lower().replace("_", "-")


def _is_utf8(values: Any) -> Any:
    """Which of the values are UTF-8; the quick way where all are."""
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
