"""Reads the lines of a partition: each part owns the lines whose first byte lies in its stretch.

A part begins its search one separator before its first byte, and reads its last line to the end, however far that is:
so neighbouring parts yield every line once, without knowing of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from tierfs.base.words.errors import DataLoss, InvalidRequest
from tierfs.base.words.names import printable
from tierfs.base.words.types import MIB, ByteRange
from tierfs.pipeline.reader import line_batches
from tierfs.pipeline.reader.block_batches import unpacked
from tierfs.pipeline.reader.extents import Extent, clip
from tierfs.pipeline.reader.fetching import ScanFetcher, WantedRequest
from tierfs.pipeline.reader.line_batches import Lines, Wanted
from tierfs.pipeline.reader.line_format import BLOCK_BYTES, BYTE_ORDER_MARK, UTF_8, LineFormat, Mode
from tierfs.pipeline.reader.planning import Part, Partition

# First read past a part's end, for the rest of its last line; each further one is four times as long, up to the most.
_FIRST_BEHIND_BYTES = 64 * 1024
_MOST_BEHIND_BYTES = 16 * MIB

# First search for the end of a line that arrives in several blocks: most lines end here, without a copy of the block.
_NEAR_BYTES = 4096

_ENDLESS = 1 << 62


def read_lines(
    fetcher: ScanFetcher, partition: Partition, form: LineFormat, wanted: Wanted
) -> Iterator[tuple[int, Lines]]:
    """Yield lines of a partition with the numbers of their parts, in batches of about 1 MiB.

    Arrays that are not wanted may be there, if finding or checking lines makes them.

    Raises InvalidRequest for a line over the limit, DataLoss for one that is not in its encoding with FAILFAST, and
    what reading raises.
    """
    arrays = _needed(form, wanted)
    readers = [_PartReader(part, form, arrays) for part in partition.parts]
    packed = [number for number, reader in enumerate(readers) if reader.codec is not None]
    requests = (
        WantedRequest(number, extent)
        for number, reader in enumerate(readers)
        if reader.codec is None
        for extent in clip(reader.part.extents, reader.first)
    )
    # One walk over all parts: those of small segments arrive in the same requests.
    for number, pieces in groupby(fetcher.pieces(requests), key=attrgetter("owner")):
        reader = readers[number]
        for piece in pieces:
            yield from ((number, lines) for lines in reader.feed(piece.view))
        yield from ((number, lines) for lines in _behind(fetcher, number, reader))
    for number in packed:
        yield from ((number, lines) for lines in _unpacked_lines(fetcher, number, readers[number]))


def _needed(form: LineFormat, wanted: Wanted) -> Wanted:
    """Return the arrays to make: checks of an encoding, and of a limit below a block's length, look at each line."""
    strict = form.mode is Mode.FAILFAST
    looks = strict or form.mode is Mode.DROPMALFORMED or form.max_line_bytes < BLOCK_BYTES
    return Wanted(wanted.values or looks, wanted.offsets or strict)


def _unpacked_lines(fetcher: ScanFetcher, number: int, reader: _PartReader) -> Iterator[Lines]:
    """Yield the lines of a compressed segment. Their offsets are of the decompressed bytes."""
    waiting = b""
    reader.read_until(_ENDLESS)
    for block in _blocks(fetcher, number, reader):
        yield from reader.feed(waiting)
        waiting = block
    reader.read_until(reader.position + len(waiting))
    yield from reader.feed(waiting)


def _blocks(fetcher: ScanFetcher, number: int, reader: _PartReader) -> Iterator[bytes]:
    part = reader.part
    assert reader.codec is not None
    pieces = fetcher.pieces(WantedRequest(number, extent) for extent in clip(part.extents, reader.first))
    return unpacked(pieces, reader.codec, part.source.name, BLOCK_BYTES)


def read_whole(fetcher: ScanFetcher, partition: Partition, form: LineFormat) -> Iterator[tuple[int, Lines]]:
    """Yield each segment of a partition as one line. Raises what `read_lines` raises."""
    readers = [_PartReader(part, form, Wanted()) for part in partition.parts]
    packed = [number for number, reader in enumerate(readers) if reader.codec is not None]
    wanted = (
        WantedRequest(number, extent)
        for number, reader in enumerate(readers)
        if reader.codec is None
        for extent in reader.whole_extents()
    )
    for number, pieces in groupby(fetcher.pieces(wanted), key=attrgetter("owner")):
        yield number, readers[number].whole(bytes(piece.view) for piece in pieces)
    for number in packed:
        yield number, readers[number].whole(_blocks(fetcher, number, readers[number]))


def _behind(fetcher: ScanFetcher, number: int, reader: _PartReader) -> Iterator[Lines]:
    """Yield the rest of the last line."""
    size_bytes = _FIRST_BEHIND_BYTES
    while not reader.done:
        wanted = reader.behind(size_bytes)
        yield from reader.feed(fetcher.read(number, clip(reader.part.extents, wanted)))
        size_bytes = min(size_bytes * 4, _MOST_BEHIND_BYTES)


class _PartReader:
    """Turns the arriving bytes of one part into its lines."""

    def __init__(self, part: Part, form: LineFormat, wanted: Wanted) -> None:
        self.part = part
        self.codec = form.codec_of(part.source.name)
        self._form = form
        self._separator = form.separator
        self._wanted = wanted
        self._most_bytes = form.max_line_bytes
        owned, pinned = part.owned, part.pinned
        self._skips = owned.start > pinned.start
        """Whether the first line is still to be found."""
        start = max(pinned.start, owned.start - form.separator.before_bytes) if self._skips else owned.start
        self.first = ByteRange(start, owned.end)
        """The range that is read in any case."""
        self._begun: list[bytes] = []
        """Blocks of the line that has no end yet: joined once, as a long one has many."""
        self._begun_bytes = 0
        self._tail = b""
        """The end of them, in which the line's end may begin."""
        self._at = start
        """Offset of the first byte of it."""
        self._read = start
        self.done = not owned

    def behind(self, size_bytes: int) -> ByteRange:
        """Return the range of the next bytes that are needed."""
        return ByteRange(self._read, min(self._read + size_bytes, self.part.pinned.end))

    @property
    def position(self) -> int:
        """The offset after the bytes that were fed."""
        return self._read

    def read_until(self, end: int) -> None:
        """Own all bytes of a compressed segment up to an end, which is known only when all are decompressed."""
        self.part = replace(self.part, owned=ByteRange(0, end), pinned=ByteRange(0, end))
        self.done = not end

    def whole_extents(self) -> tuple[Extent, ...]:
        """Return the extents of the part, which is no longer than a line may be."""
        self._require_short(self.part.owned.length_bytes, self.part.owned.start)
        return clip(self.part.extents, self.part.owned)

    def whole(self, blocks: Iterable[bytes]) -> Lines:
        """Return all bytes of the part as one line."""
        data = bytearray()
        for block in blocks:
            data += block
            self._require_short(len(data), self.part.owned.start)
        return self._in_encoding(line_batches.one_line(bytes(data), self.part.owned.start))

    def feed(self, view: bytes | memoryview) -> Iterator[Lines]:
        """Take the next bytes and yield the lines that are now complete. Keeps nothing of `view`."""
        size_bytes = 0 if self.done else len(view)
        for at in range(0, size_bytes, BLOCK_BYTES):
            block = view[at : at + BLOCK_BYTES]
            self._read += len(block)
            if self._is_inside(block):
                self._keep(bytes(block))
                continue
            data = b"".join((*self._begun, block))
            self._begun, self._begun_bytes, self._tail = [], 0, b""
            yield from self._take(data)
            if self.done:
                return

    def _keep(self, data: bytes) -> None:
        """Keep bytes of a line for those that follow."""
        before = self._separator.before_bytes
        self._begun.append(data)
        self._begun_bytes += len(data)
        self._tail = (self._tail + data[-before:])[-before:]

    def _is_inside(self, block: bytes | memoryview) -> bool:
        """Return whether the line that has begun has no end in this block, and is not too long yet."""
        size_bytes = self._begun_bytes + len(block)
        if self._skips or not self._begun or self._read >= self.part.pinned.end or size_bytes > self._most_bytes:
            return False
        ends = (
            self._separator.complete_bytes(b"".join((self._tail, look)), final=False)
            for look in (block[:_NEAR_BYTES], block)
        )
        return not any(ends)

    def _take(self, data: bytes) -> Iterator[Lines]:
        final = self._read >= self.part.pinned.end
        if self._skips:
            data = self._skipped(data, final=final)
        if self._at >= self.part.owned.end or self._skips:
            self._keep(data)
            self.done = final or (self._at >= self.part.owned.end and not self._skips)
            return
        yield from self._lines(data, final=final)

    def _skipped(self, data: bytes, *, final: bool) -> bytes:
        """Return the bytes after the line of an earlier part; without a line's begin, the few that may precede one."""
        start = self._separator.first_start(data, final=final)
        if start is None:
            keep = min(len(data), self._separator.before_bytes)
            if self._at + len(data) >= self.part.owned.end:  # the line of an earlier part ends at its end or behind it
                self._skips, keep = False, 0
            self._at += len(data) - keep
            return data[len(data) - keep :]
        self._at += start
        self._skips = False
        return data[start:]

    def _lines(self, data: bytes, *, final: bool) -> Iterator[Lines]:
        past = self._read - self.part.owned.end
        if past > 0 or (past == 0 and final):
            yield from self._last_lines(data, final=final)
            return
        whole = self._separator.complete_bytes(data, final=final)
        rest = data[whole:]
        self._keep(rest)
        if whole:
            yield self._batch(data[:whole] if whole < len(data) else data)
        self._require_short(self._form.least_bytes(rest, self._at), self._at)
        self.done = self._at >= self.part.owned.end

    def _last_lines(self, data: bytes, *, final: bool) -> Iterator[Lines]:
        """Yield lines that begin before the part's end; the last one may end past it."""
        whole = self._separator.complete_bytes(data, final=final)
        ended = not (final and whole < len(data))  # else the last line has no end of its own
        text = data[:whole] if ended else data
        if not text:
            self._keep(data)
            self._require_short(self._form.least_bytes(data, self._at), self._at)
            return
        owned_bytes = self.part.owned.end - self._at
        if len(text) > owned_bytes:
            text = self._cut(text, owned_bytes)
            ended = ended or len(text) < len(data)
        yield self._batch(text, ended=ended)
        self._keep(data[len(text) :])
        self.done = final or self._at >= self.part.owned.end

    def _cut(self, text: bytes, owned_bytes: int) -> bytes:
        """Return the lines of `text` that begin in the first `owned_bytes`."""
        before = self._separator.before_bytes
        if owned_bytes < before:
            start = self._separator.first_start(text, final=True)
            return text[:start]
        # A line that begins at the first byte after is the next part's: look from just before it.
        look = text[owned_bytes - before :]
        start = self._separator.first_start(look, final=True)
        return text if start is None else text[: owned_bytes - before + start]

    def _batch(self, text: bytes, *, ended: bool = True) -> Lines:
        at = self._at
        self._at += len(text)
        if at == 0 and text.startswith(BYTE_ORDER_MARK) and self._form.encoding == UTF_8:
            text, at = text[len(BYTE_ORDER_MARK) :], len(BYTE_ORDER_MARK)
        lines = line_batches.split(text, at, self._separator, self._wanted, ended=ended)
        if lines.values is None:
            self._require_short(self._separator.first_line_bytes(text), at)
            return lines
        self._require_short_lines(lines, at)
        return self._in_encoding(lines)

    def _in_encoding(self, lines: Lines) -> Lines:
        form = self._form
        if form.encoding != UTF_8:
            errors = "strict" if form.mode is Mode.FAILFAST else "replace"
            try:
                return line_batches.decoded(lines, form.encoding, errors)
            except UnicodeDecodeError as exc:
                name = printable(self.part.source.name)
                first = lines.offsets[0].as_py()
                raise DataLoss(f"segment {name}: a line after byte {first} is not {form.encoding}: {exc}") from exc
        if form.mode is Mode.FAILFAST:
            return line_batches.checked(lines, printable(self.part.source.name))
        return line_batches.without_malformed(lines) if form.mode is Mode.DROPMALFORMED else lines

    def _require_short_lines(self, lines: Lines, start: int) -> None:
        # Only the first line of a batch can be longer than a block.
        all_fit = self._form.max_line_bytes >= BLOCK_BYTES
        self._require_short(line_batches.first_length(lines) if all_fit else line_batches.longest(lines), start)

    def _require_short(self, length_bytes: int, start: int) -> None:
        limit = self._form.max_line_bytes
        if length_bytes > limit:
            raise InvalidRequest(
                f"segment {printable(self.part.source.name)}: a line at or after byte {start} has more than "
                f"{limit} bytes",
                remedy="set the option maxLineBytes, or read type bytes",
            )
