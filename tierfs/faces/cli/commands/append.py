"""Define tierfs append: append files, or standard input, to a segment."""

from __future__ import annotations

import logging
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial

import click

from tierfs.app.inputs import STDIN, STDIN_FD, InputBlock, InputSource, blocks
from tierfs.app.room import HOLDER_WAIT_S, Room
from tierfs.app.store import Store
from tierfs.base.bytes.frozen import dataclass
from tierfs.base.bytes.progress import Meter
from tierfs.base.system import deadlines, guards
from tierfs.base.system.deadlines import Deadline
from tierfs.base.words import names
from tierfs.base.words.errors import IsDirectory, NotFound, OffsetMismatch, PermissionDenied, TierfsError, Unconfirmed
from tierfs.base.words.types import MIB, Ack
from tierfs.engine.segments.writer import SegmentWriter
from tierfs.faces.cli.errors import Partial
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import ack_option, wait_option
from tierfs.faces.cli.parameter_types import Size
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

# An input that the server of the admin API appends: with more, one process gains nothing by sharing its syncs.
_SERVED_BYTES = MIB

# Wait for the server's answer to such an append, beyond the deadline that its bucket has: for other appends and the
# local disk (a guess).
_LOCAL_ANSWER_S = 30.0

log = logging.getLogger(__name__)


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
@click.option(
    "--skip",
    type=Size(),
    metavar="N",
    default=0,
    help="Skip the first N bytes of the input; they must equal the segment's last N bytes.",
)
@click.option("--seal", is_flag=True, help="Seal the segment after these bytes.")
@click.option("--create", is_flag=True, hidden=True, expose_value=False)  # a missing segment is always created
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

    Prints one line when all bytes are durable: the segment, the offset of the first byte, and the offset
    after the last one. On a full disk cold bytes are evicted first.

    --ack, else the policy `ack`, sets where they are durable then: on the local disk, or in the cold tier and recorded
    in its journal, so that they survive the loss of this host.

    --skip continues an input that was appended in part: its first N bytes are compared with the last N of the
    segment, by checksums, and a different input, such as a log after its rotation, is refused (exit 5).
    """
    session.require_output()
    paths = files or (STDIN,)
    check_readable(paths)
    with session.open_store() as store, InputSource(paths) as stream, _progress(session, paths, skip) as meter:
        name = store.segment_of_path(segment)
        if skip:
            expect_offset = _pass_appended(session, store, name, stream, skip, expect_offset)
        if not take_over and ack is None and store.paths.admin_socket.exists():
            with _telling_what_to_skip(expect_offset, skip):
                served = _by_server(store, name, stream, expect_offset, seal=seal)
            if served is not None:
                _tell(session, served)
                return
        room = Room(store, session, wait_s=wait, holder_wait_s=HOLDER_WAIT_S)
        how = Ack(ack) if ack is not None else None
        opened = partial(store.engine.open_writer, name, expected_offset=expect_offset, take_over=take_over, ack=how)
        # With --wait a full disk may be waited for longer, and the deadline is that of each append alone.
        in_time = nullcontext() if wait is not None else store.engine.in_time(name, how)
        with _telling_what_to_skip(expect_offset, skip), in_time:
            writer, deadline = room.make(name, opened), deadlines.current()
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
                copy(stream, writer, done, room, meter, seal=seal, first=deadline if stream.is_ready() else None)
    _tell(session, done)


def _pass_appended(
    session: Session, store: Store, name: str, stream: InputSource, skip: int, expect_offset: int | None
) -> int:
    """Pass the bytes to skip; return the offset at which the rest is expected. Raises as pass_appended."""
    from tierfs.faces.cli.commands.skipped import pass_appended

    with _telling_what_to_skip(expect_offset, skip):
        return pass_appended(session, store, name, stream, skip, expect_offset)


def _by_server(
    store: Store, name: str, stream: InputSource, expected_offset: int | None, *, seal: bool
) -> Acknowledged | None:
    """Append by the process that serves the admin API, which makes the appends of many commands together.

    Returns None, with none of the input taken, where none does, and for an input that is long or still grows.
    """
    from tierfs.faces.admin import client

    data = stream.whole(_SERVED_BYTES)
    if data is None:
        return None
    canonical = names.join(names.split(name))
    answer_s = store.settings.ack.deadline_s + _LOCAL_ANSWER_S
    done = client.append(store.paths.admin_socket, canonical, data, expected_offset, seal=seal, answer_s=answer_s)
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
    files = [os.stat(STDIN_FD if path == STDIN else path) for path in paths]
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
    stream: InputSource,
    writer: SegmentWriter,
    done: Acknowledged,
    room: Room,
    meter: Meter,
    *,
    seal: bool,
    first: Deadline | None = None,
) -> None:
    """Append all of a stream; `done` grows with every acknowledged block.

    Each block has a deadline of its own, but the first one where it has that of the opening of its writer.
    """

    def add(block: InputBlock) -> None:
        with guards.deferred():  # Ctrl-C must not arrive between the commit and its note
            done.end = writer.append(block.data, last=block.last, seal=seal and block.last).end

    ended = False
    for block in blocks(stream):
        with nullcontext() if first is None else first.in_force():
            room.make(writer.name, partial(add, block))
        meter(len(block.data), writer.name)
        ended, first = block.last, None
    if not ended and (seal or done.start == done.end):
        with nullcontext() if first is None else first.in_force():
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
        remedy = f"to append the remaining input: {again}"
        if stdin_after is not None:
            text += f"; {stream.consumed_bytes - stdin_after} were read from standard input"
            remedy = f"to append the remaining input, give the same input from its start to: {again}"
        raise Partial(exc, text, remedy=remedy, acknowledged=asdict(done), command=again) from exc
