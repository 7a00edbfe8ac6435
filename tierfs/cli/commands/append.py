"""Define tierfs append, and read the input of append and ingest: files and pipes as one stream of blocks."""

from __future__ import annotations

import io
import logging
import os
import select
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

import click

from tierfs import names
from tierfs.app.room import HOLDER_WAIT_S, Room
from tierfs.app.store import Store
from tierfs.checksum import Buffer
from tierfs.cli.errors import Partial
from tierfs.cli.group import ack_option, command, path_argument
from tierfs.cli.options import Size, wait_option
from tierfs.cli.progress import progress_line
from tierfs.cli.session import Session
from tierfs.errors import (
    InvalidRequest,
    IsDirectory,
    NotFound,
    OffsetMismatch,
    PermissionDenied,
    TierfsError,
    Unconfirmed,
)
from tierfs.parallel import Meter
from tierfs.segments.writer import SegmentWriter
from tierfs.system import guards
from tierfs.types import MIB, Ack

STDIN = "-"

# Bytes of one append: large enough to make its fdatasync and commit a small part of it (guess).
BLOCK_BYTES = 4 * MIB

# An input that the server of the admin API appends: with more, one process gains nothing by sharing its syncs.
_SERVED_BYTES = MIB

# Wait of an incomplete block for more bytes; too short to be noticed in `tail -f | tierfs append`.
LINGER_S = 0.05

_STDIN_FD = 0


def check_readable(paths: Sequence[str]) -> None:
    """Raise NotFound, IsDirectory or PermissionDenied for a bad input. Pipes are not opened, as that disturbs them."""
    for path in paths:
        if path == STDIN:
            continue
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError as exc:
            raise NotFound(f"file {path} does not exist") from exc
        if stat.S_ISDIR(mode):
            raise IsDirectory(f"{path} is a directory", remedy="to copy its files: tierfs ingest DIRECTORY --into DIR")
        if not os.access(path, os.R_OK, effective_ids=True):
            raise PermissionDenied(f"file {path} cannot be read")


class InputSource:
    """Read files one after the other, unbuffered; a context manager."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = iter(paths)
        self._path = ""
        self._file: io.FileIO | None = None
        self.consumed_bytes = 0
        """Bytes read or skipped."""
        self._again = memoryview(b"")
        """Bytes that are read once more."""
        self._next_file()

    def read_into(self, view: memoryview) -> int:
        """Read available bytes, waiting for at least one; return 0 at the end of the last file."""
        if self._again:
            part, self._again = self._again[: len(view)], self._again[len(view) :]
            view[: len(part)] = part
            self.consumed_bytes += len(part)
            return len(part)
        while self._file is not None:
            try:
                size = self._file.readinto(view)
            except OSError as exc:
                exc.filename = "standard input" if self._path == STDIN else self._path
                raise
            if size:
                self.consumed_bytes += size
                return size
            self._next_file()
        return 0

    def skip(self, size_bytes: int) -> int:
        """Skip bytes, across the ends of files too; return the number of bytes skipped, fewer only at the end."""
        spare = memoryview(bytearray(min(size_bytes, BLOCK_BYTES)))
        remaining = size_bytes
        while remaining and (read := self._seek(remaining) or self.read_into(spare[: min(remaining, len(spare))])):
            remaining -= read
        return size_bytes - remaining

    def whole(self, most_bytes: int) -> bytes | None:
        """Return all of the input that is left if it ends soon, within so many bytes; None, with none of it taken."""
        view = memoryview(bytearray(most_bytes))
        size, ended = _fill(self, view)
        if ended:
            return bytes(view[:size])
        self.read_again(view[:size])
        return None

    def read_again(self, data: Buffer) -> None:
        """Let bytes that were read last be read once more."""
        self._again = memoryview(data)
        self.consumed_bytes -= len(self._again)

    def _seek(self, size_bytes: int) -> int:
        """Seek over bytes of a regular file; return their number, 0 if the file cannot seek."""
        if self._file is None or not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            return 0
        at = self._file.tell()
        passed = max(0, min(size_bytes, os.fstat(self._file.fileno()).st_size - at))
        self._file.seek(at + passed)
        self.consumed_bytes += passed
        return passed

    def fileno(self) -> int:
        """Return the descriptor of the current file."""
        assert self._file is not None
        return self._file.fileno()

    def is_ready(self, timeout_s: float = 0) -> bool:
        """Wait up to `timeout_s` and return whether read_into would return at once; always true for files."""
        if self._again or self._file is None:
            return True
        poll = select.poll()  # works for files too, and for any descriptor number
        poll.register(self._file.fileno(), select.POLLIN)
        return bool(poll.poll(max(0, timeout_s * 1000)))

    def close(self) -> None:
        """Close the current file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> InputSource:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _next_file(self) -> None:
        self.close()
        path = next(self._paths, None)
        if path is None:
            return
        self._path = path
        self._file = io.FileIO(_STDIN_FD, closefd=False) if path == STDIN else io.FileIO(path)


@dataclass(frozen=True, slots=True)
class InputBlock:
    """A part of the stream, valid until the next block is requested."""

    data: memoryview
    last: bool
    """Whether the source has ended; the last block of a slow pipe may have False."""


def blocks(source: InputSource, size_bytes: int = BLOCK_BYTES) -> Iterator[InputBlock]:
    """Yield the stream in blocks of `size_bytes`; shorter ones if data arrives slowly, none for an empty stream.

    One block is read ahead to recognize the last one, but never waited for: bytes that arrived are yielded.
    """
    current, spare = memoryview(bytearray(size_bytes)), memoryview(bytearray(size_bytes))
    size, ended = _fill(source, current)
    while size:
        if ended or not source.is_ready():
            yield InputBlock(current[:size], ended)
            size, ended = (0, True) if ended else _fill(source, current)
        else:
            following, ended = _fill(source, spare)
            yield InputBlock(current[:size], following == 0)
            current, spare, size = spare, current, following


def _fill(source: InputSource, view: memoryview) -> tuple[int, bool]:
    """Fill `view`; return the number of bytes read and whether the source has ended."""
    size = source.read_into(view)
    deadline_s = time.monotonic() + LINGER_S
    while 0 < size < len(view):
        if not source.is_ready(deadline_s - time.monotonic()):
            return size, False
        more = source.read_into(view[size:])
        if more == 0:
            return size, True
        size += more
    return size, size == 0


log = logging.getLogger(__name__)


@dataclass(slots=True)
class Acknowledged:
    """Bytes of a segment that are durable."""

    segment: str
    start: int
    end: int


@command("append")
@path_argument("segment")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--expect-offset", type=Size(), metavar="N", help="Fail unless the segment's length is N.")
@click.option("--skip", type=Size(), metavar="N", default=0, help="Skip the first N bytes of the input.")
@click.option("--seal", is_flag=True, help="Seal the segment after these bytes.")
@click.option("--take-over", is_flag=True, help="Fence another writer of the segment that is still alive.")
@ack_option
@wait_option
def append(
    session: Session,
    segment: str,
    files: tuple[str, ...],
    expect_offset: int | None,
    skip: int,
    seal: bool,
    take_over: bool,
    ack: str | None,
    wait: float | None,
) -> None:
    """Append FILEs to SEGMENT, or stdin if there is no FILE (or for -); create it if missing.

    Prints one line when everything is durable: the segment, the offset of the first byte, and the offset
    after the last one. On a full disk cold bytes are evicted first.

    --ack, else the policy `ack`, says where it is durable then: on the local disk, or in the cold tier and named by
    its journal, so that no loss of this host loses it.
    """
    session.require_output()
    paths = files or (STDIN,)
    check_readable(paths)
    with session.open_store() as store, InputSource(paths) as stream, _progress(session, paths, skip) as meter:
        name = store.segment_of_path(segment)
        skipped = stream.skip(skip)
        if skipped < skip:
            raise InvalidRequest(f"the input has {skipped} bytes, fewer than --skip {skip}")
        if not take_over and ack is None and store.paths.admin_socket.exists():
            with _telling_what_to_skip(expect_offset, skip):
                served = _by_server(store, name, stream, expect_offset, seal=seal)
            if served is not None:
                _tell(session, served)
                return
        room = Room(store, session, wait_s=wait, holder_wait_s=HOLDER_WAIT_S)
        how = Ack(ack) if ack is not None else None
        opened = partial(store.engine.open_writer, name, expected_offset=expect_offset, take_over=take_over, ack=how)
        with _telling_what_to_skip(expect_offset, skip):
            writer = room.make(name, opened)
        with closing_writer(store, writer):
            done = Acknowledged(writer.name, writer.length, writer.length)

            def again(end: int) -> str:
                """Return the command that appends the rest of the same input, from the segment's offset `end` on."""
                passed = skip + end - done.start
                path = str(session.require_store_path())
                named = [] if os.environ.get("TIERFS_STORE") == path else ["--store", path]
                words = ["tierfs", *named, "append", "--expect-offset", str(end)]
                words += ["--skip", str(passed)] * (passed > 0) + ["--seal"] * seal
                words += [f"--ack={ack}"] if ack is not None else []
                return shlex.join([*words, "--", segment, *files])

            with _resumable(done, again, stream, skip if STDIN in paths else None):
                copy(stream, writer, done, room, meter, seal=seal)
    _tell(session, done)


def _by_server(
    store: Store, name: str, stream: InputSource, expected_offset: int | None, *, seal: bool
) -> Acknowledged | None:
    """Append by the process that serves the admin API, which makes the appends of many commands together.

    Returns None, with none of the input taken, where none does, and for an input that is long or still grows.
    """
    from tierfs.admin import client

    data = stream.whole(_SERVED_BYTES)
    if data is None:
        return None
    canonical = names.join(names.split(name))
    done = client.append(store.paths.admin_socket, canonical, data, expected_offset, seal=seal)
    if done is None:
        stream.read_again(data)
        return None
    return Acknowledged(canonical, done.start, done.end)


def _tell(session: Session, done: Acknowledged) -> None:
    warning = names.hadoop_warning(done.segment) if done.start == 0 else None
    if warning is not None:
        session.warn(warning)
    session.done(asdict(done), f"{names.printable(done.segment)} {done.start} {done.end}")


@contextmanager
def _progress(session: Session, paths: Sequence[str], skip_bytes: int) -> Iterator[Meter]:
    """Show the bytes of regular files; how long a pipe takes is known to its writer alone, which may show it."""
    files = [os.stat(_STDIN_FD if path == STDIN else path) for path in paths]
    if not all(stat.S_ISREG(file.st_mode) for file in files):
        yield Meter()
        return
    with progress_line(session) as show:
        yield Meter(show, max(0, sum(file.st_size for file in files) - skip_bytes))


@contextmanager
def _telling_what_to_skip(expected_offset: int | None, skip_bytes: int) -> Iterator[None]:
    """Add the new value of --skip, if used, to an OffsetMismatch: a new offset alone would duplicate bytes."""
    try:
        yield
    except OffsetMismatch as exc:
        more = exc.actual_length - (expected_offset or 0)
        if skip_bytes and more > 0:
            exc.remedy = (
                f"if the {more} bytes from offset {expected_offset} on were appended from this input before: "
                f"--expect-offset {exc.actual_length} --skip {skip_bytes + more}"
            )
        raise


@contextmanager
def closing_writer(store: Store, writer: SegmentWriter) -> Iterator[SegmentWriter]:
    """Close the writer after the block, also after an error."""
    try:
        yield writer
    except BaseException:
        try:
            store.engine.close_writer(writer)
        except TierfsError as exc:
            # The error of the block gives the reason; closing only marks the chunk resumable.
            log.debug("%s: not closed cleanly: %s", names.printable(writer.name), exc)
        raise
    store.engine.close_writer(writer)


def copy(
    stream: InputSource, writer: SegmentWriter, done: Acknowledged, room: Room, meter: Meter, *, seal: bool
) -> None:
    """Append all of a stream; `done` grows with every acknowledged block."""

    def add(block: InputBlock) -> None:
        with guards.deferred():  # Ctrl-C must not arrive between the commit and its note
            done.end = writer.append(block.data, last=block.last, seal=seal and block.last).end

    ended = False
    for block in blocks(stream):
        room.make(writer.name, partial(add, block))
        meter(len(block.data), writer.name)
        ended = block.last
    if not ended and (seal or done.start == done.end):
        writer.append(b"", last=True, seal=seal)


@contextmanager
def _resumable(
    done: Acknowledged, command_again: Callable[[int], str], stream: InputSource, stdin_after: int | None
) -> Iterator[None]:
    """Add to an error inside the block the acknowledged bytes and the command that appends the rest.

    `stdin_after` is the part of the input that was skipped, where standard input is a part of it.
    """
    try:
        yield
    except (TierfsError, OSError, KeyboardInterrupt) as exc:
        cause = exc.__context__ if isinstance(exc, KeyboardInterrupt) else exc
        again = command_again(cause.end if isinstance(cause, Unconfirmed) else done.end)
        number, segment = done.end - done.start, names.printable(done.segment)
        text = f"{number} bytes are acknowledged: {segment} {done.start} {done.end}"
        remedy = f"to append the rest: {again}"
        if stdin_after is not None:
            text += f"; {stream.consumed_bytes - stdin_after} were read from standard input"
            remedy = f"to append the rest, give the same input again, from its beginning, to: {again}"
        raise Partial(exc, text, remedy=remedy, acknowledged=asdict(done), command=again) from exc
