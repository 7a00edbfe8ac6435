"""tierfs append: bytes from files or stdin onto a segment."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

import click

from tierfs import interrupts, names
from tierfs.app import Store
from tierfs.cli import source
from tierfs.cli.edge import Partial
from tierfs.cli.lazy import command
from tierfs.cli.parameters import Size
from tierfs.cli.room import HOLDER_WAIT_S, Room, wait_option
from tierfs.cli.session import Session
from tierfs.cli.source import Block, Source, blocks
from tierfs.errors import InvalidRequest, OffsetMismatch, TierfsError
from tierfs.segments.writer import SegmentWriter

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Acknowledged:
    """Bytes of a segment that are durable."""

    segment: str
    start: int
    end: int

    @property
    def bytes(self) -> int:
        """How many."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Call:
    """What was typed, to say what to type next."""

    store: tuple[str, ...]
    segment: str
    files: tuple[str, ...]
    seal: bool
    skip: int

    def again(self, done: Acknowledged) -> str:
        """The command that appends the rest of the same input."""
        skip = self.skip + done.bytes
        words = ["tierfs", *self.store, "append", "--expect-offset", str(done.end)]
        words += ["--skip", str(skip)] * (skip > 0) + ["--seal"] * self.seal
        return shlex.join([*words, "--", self.segment, *self.files])


@command("append")
@click.argument("segment")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--expect-offset", type=Size(), metavar="N", help="Refuse unless the segment's length is N.")
@click.option("--skip", type=Size(), metavar="N", default=0, help="Leave out the first N bytes of the input.")
@click.option("--seal", is_flag=True, help="End the segment with these bytes.")
@click.option("--take-over", is_flag=True, help="Fence a writer that is still alive.")
@wait_option
def append(
    session: Session,
    segment: str,
    files: tuple[str, ...],
    expect_offset: int | None,
    skip: int,
    seal: bool,
    take_over: bool,
    wait: float | None,
) -> None:
    """Append FILEs, or stdin without one (or for -), to SEGMENT, creating it if it is missing.

    Prints one line when everything is durable: the segment, the offset of the first byte, and the offset
    behind the last one. On a full disk cold bytes are evicted first.
    """
    session.require_output()
    paths = files or (source.STDIN,)
    source.check_readable(paths)
    with session.open_store() as store, Source(paths) as stream:
        name = store.segment_of_path(segment)
        _skip(stream, skip)
        room = Room(store, session, wait_s=wait, holder_wait_s=HOLDER_WAIT_S)
        opened = partial(store.engine.open_writer, name, expected_offset=expect_offset, take_over=take_over)
        with _telling_what_to_skip(expect_offset, skip):
            writer = room.make(name, opened)
        with closing_writer(store, writer):
            done = Acknowledged(writer.name, writer.length, writer.length)
            with resumable(done, Call(session.store_words, segment, files, seal, skip), stream):
                copy(stream, writer, done, room, seal=seal)
    _warn_of_name(session, done)
    session.result(asdict(done), f"{names.printable(done.segment)} {done.start} {done.end}")


def _skip(stream: Source, size_bytes: int) -> None:
    """Pass over the beginning of the input. Raises InvalidRequest when it is not that long."""
    found = stream.skip(size_bytes)
    if found < size_bytes:
        raise InvalidRequest(f"the input has {found} bytes, fewer than --skip {size_bytes}")


@contextmanager
def _telling_what_to_skip(expected_offset: int | None, skip_bytes: int) -> Iterator[None]:
    """Make an OffsetMismatch of a command with --skip say both numbers: a new offset alone would append bytes twice."""
    try:
        yield
    except OffsetMismatch as exc:
        more = exc.actual_length - (expected_offset or 0)
        if skip_bytes and more > 0:
            exc.remedy = (
                f"if the {more} bytes from {expected_offset} on are of this input, from an earlier try: "
                f"--expect-offset {exc.actual_length} --skip {skip_bytes + more}"
            )
        raise


@contextmanager
def closing_writer(store: Store, writer: SegmentWriter) -> Iterator[SegmentWriter]:
    """Close the writer behind the block, whatever happens in it."""
    try:
        yield writer
    except BaseException:
        try:
            store.engine.close_writer(writer)
        except TierfsError as exc:
            # The error on its way says why; closing only marks the chunk resumable.
            log.debug("%s: not closed cleanly: %s", names.printable(writer.name), exc)
        raise
    store.engine.close_writer(writer)


def copy(stream: Source, writer: SegmentWriter, done: Acknowledged, room: Room, *, seal: bool) -> None:
    """Append all of a stream; `done` grows with every block that is acknowledged."""
    ended = False
    for block in blocks(stream):
        room.make(writer.name, partial(_append, writer, block, done, seal=seal))
        ended = block.last
    if not ended and (seal or done.start == done.end):
        writer.append(b"", last=True, seal=seal)


def _append(writer: SegmentWriter, block: Block, done: Acknowledged, *, seal: bool) -> None:
    with interrupts.deferred():  # else Ctrl-C could come between the commit and the note of it
        done.end = writer.append(block.data, last=block.last, seal=seal and block.last).end


@contextmanager
def resumable(done: Acknowledged, call: Call, stream: Source) -> Iterator[None]:
    """Make an error inside the block say how far the append got, and what to type to go on."""
    try:
        yield
    except (TierfsError, OSError, KeyboardInterrupt) as exc:
        again = call.again(done)
        text = f"{done.bytes} bytes are acknowledged: {names.printable(done.segment)} {done.start} {done.end}"
        remedy = f"to append the rest: {again}"
        if not call.files or source.STDIN in call.files:
            text += f"; {stream.consumed_bytes - call.skip} were read from standard input"
            remedy = f"to append the rest, give the same input again, from its beginning, to: {again}"
        raise Partial(exc, text, remedy=remedy, acknowledged=asdict(done), command=again) from exc


def _warn_of_name(session: Session, done: Acknowledged) -> None:
    warning = names.hadoop_warning(done.segment) if done.start == 0 else None
    if warning is not None:
        session.warn(warning)
