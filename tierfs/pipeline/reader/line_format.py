"""The form of lines: their ends, encoding and limits. Pure, and without Arrow: drivers plan with it.

Lines end at LF, CRLF and CR as in Spark's text reader, or at one separator.
"""

from __future__ import annotations

from enum import StrEnum

from tierfs.base.bytes.frozen import dataclass, field
from tierfs.base.words.errors import InvalidRequest
from tierfs.base.words.types import MIB
from tierfs.pipeline.reader.planning import Reach

_LF = b"\n"
_CR = b"\r"
_LF_BYTE = 0x0A
_CRLF = b"\r\n"
UTF_8 = "utf-8"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Lines are split in blocks of about this (measured: 8 MiB are a tenth slower).
BLOCK_BYTES = MIB

# Arrow's names of codecs, by the ends of names by which Spark's text source knows them, in any case (tried with 4.3.0:
# .GZ, .gzip, .zstd and .Deflate are decompressed by path, .z, .tgz, .bzip2 and .zlib are not). Arrow's gzip also reads
# the streams of zlib that Hadoop calls deflate.
CODECS = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".deflate": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".zstd": "zstd",
}

# Hadoop's own forms of these, which Arrow does not read.
UNREAD_CODECS = {".lz4": "lz4", ".snappy": "snappy"}


@dataclass(frozen=True, slots=True)
class Separator:
    """The end of a line; without `text`, each of LF, CRLF and CR."""

    text: bytes | None = None

    @classmethod
    def of(cls, option: str | None, encoding: str = "utf-8") -> Separator:
        """Return the option lineSep as a separator in the text's encoding. Raises InvalidRequest for an empty one."""
        if option is None:
            return cls()
        if not option:
            raise InvalidRequest("lineSep is empty", remedy="omit it: lines then end with LF, CRLF or CR")
        return cls(option.encode(encoding))

    @property
    def before_bytes(self) -> int:
        """Return the number of bytes before an offset that decide whether a line begins there."""
        return 1 if self.text is None else len(self.text)

    @property
    def may_be_split(self) -> bool:
        """Return whether occurrences never overlap, so that they are the same wherever the search begins."""
        text = self.text
        return text is None or not any(text[:size] == text[-size:] for size in range(1, len(text)))

    def first_start(self, data: bytes, *, final: bool) -> int | None:
        """Return the offset in `data` of the first line that begins after the first `before_bytes`, or None.

        `data` begins `before_bytes` before the offset in question; `final`: no bytes follow it.
        """
        if self.text is not None:
            at = data.find(self.text)
            return None if at < 0 else at + len(self.text)
        lf = data.find(_LF)
        cr = data.find(_CR, 0, len(data) if lf < 0 else lf)
        if cr < 0:
            return None if lf < 0 else lf + 1
        if cr + 1 < len(data):
            return cr + 2 if data[cr + 1] == _LF_BYTE else cr + 1
        return cr + 1 if final else None

    def first_line_bytes(self, data: bytes) -> int:
        """Return the length of the first line of `data`, without its end."""
        end = data.find(_LF if self.text is None else self.text)
        end = len(data) if end < 0 else end
        cr = data.find(_CR, 0, end) if self.text is None else -1
        return end if cr < 0 else cr

    def complete_bytes(self, data: bytes, *, final: bool) -> int:
        """Return the number of bytes at the start of `data` that are whole lines with their ends.

        A CR at the end may be half of a CRLF, unless `final`.
        """
        if self.text is not None:
            return self._complete_of_text(data)
        end = len(data) if final or not data.endswith(_CR) else len(data) - 1
        lf = data.rfind(_LF, 0, end)
        return max(lf, data.rfind(_CR, lf + 1, end)) + 1  # most data has no CR: no search from end to start

    def _complete_of_text(self, data: bytes) -> int:
        assert self.text is not None
        if self.may_be_split:
            return data.rfind(self.text) + len(self.text) if self.text in data else 0
        at = 0
        while (begin := data.find(self.text, at)) >= 0:  # from the left: a search from the right finds others
            at = begin + len(self.text)
        return at

    def begun_bytes(self, data: bytes) -> int:
        """Return the number of bytes at the end of `data` that may be the first ones of a line's end."""
        text = _CRLF if self.text is None else self.text
        return next((size for size in range(len(text) - 1, 0, -1) if data.endswith(text[:size])), 0)


def require_encoding(encoding: str) -> str:
    """Return the encoding's canonical name. Raises InvalidRequest if LF is not the same byte as in ASCII."""
    try:
        same = "\r\n".encode(encoding) == _CRLF
    except LookupError as exc:
        raise InvalidRequest(
            f"unknown encoding {encoding}", remedy="set encoding to a known one, such as utf-8"
        ) from exc
    if not same:
        raise InvalidRequest(
            f"line splitting does not support the encoding {encoding}", remedy="read type bytes, or the path of a mount"
        )
    return encoding.lower().replace("_", "-")


class Mode(StrEnum):
    """Treatment of lines that are not in their encoding."""

    PERMISSIVE = "PERMISSIVE"
    """Keep them: unchanged in UTF-8, else with replacement characters."""
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The separator, encoding and limits of lines."""

    separator: Separator = field(default_factory=Separator)
    encoding: str = UTF_8
    mode: Mode = Mode.PERMISSIVE
    max_line_bytes: int = 16 * MIB
    whole: bool = False
    """Whether a segment is one line, whatever ends it holds."""
    decompresses: bool = False
    """Whether the end of a segment's name tells how it is compressed."""

    def codec_of(self, name: str) -> str | None:
        """Return how a segment of this name is compressed."""
        if not self.decompresses or "." not in name:
            return None
        end = name[name.rfind(".") :].lower()
        return CODECS.get(end) or UNREAD_CODECS.get(end)

    def least_bytes(self, begun: bytes, at: int) -> int:
        """Return the least length of the line at offset `at` of which these bytes have arrived, and no end.

        Whatever may turn out to be the mark before the line, or the first bytes of its end, is none of it.
        """
        marked = at == 0 and self.encoding == UTF_8 and BYTE_ORDER_MARK.startswith(begun[: len(BYTE_ORDER_MARK)])
        around_bytes = self.separator.begun_bytes(begun) + (len(BYTE_ORDER_MARK) if marked else 0)
        return max(0, len(begun) - around_bytes)

    @property
    def reach(self) -> Reach:
        """The bytes a part needs beside its own."""
        if self.whole:
            return Reach(splits=False)
        before, uncut = self.separator.before_bytes, tuple(CODECS) if self.decompresses else ()
        return Reach(before, self.max_line_bytes + BLOCK_BYTES, self.separator.may_be_split, uncut=uncut)
