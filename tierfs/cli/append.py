"""tierfs append: bytes from files or stdin onto a segment."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import click

from tierfs import names
from tierfs.app import Store
from tierfs.cli import source
from tierfs.cli.edge import Partial
from tierfs.cli.lazy import command
from tierfs.cli.parameters import Size
from tierfs.cli.session import Session
from tierfs.cli.source import Source, blocks
from tierfs.errors import TierfsError
from tierfs.segments.writer import SegmentWriter

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Acknowledged:
    """Bytes of a segment that are durable."""

    segment: str
    start: int
    end: int


@command("append")
@click.argument("segment")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--expect-offset", type=Size(), metavar="N", help="Refuse unless the segment's length is N.")
@click.option("--seal", is_flag=True, help="End the segment with these bytes.")
@click.option("--take-over", is_flag=True, help="Fence a writer that is still alive.")
def append(
    session: Session, segment: str, files: tuple[str, ...], expect_offset: int | None, seal: bool, take_over: bool
) -> None:
    """Append FILEs, or stdin without one (or for -), to SEGMENT, creating it if it is missing.

    Prints one line when everything is durable: the segment, the offset of the first byte, and the offset
    behind the last one.
    """
    session.require_output()
    paths = files or (source.STDIN,)
    source.check_readable(paths)
    with session.open_store() as store, Source(paths) as stream:
        name = store.segment_of_path(segment)
        writer = store.engine.open_writer(name, expected_offset=expect_offset, take_over=take_over)
        with closing_writer(store, writer):
            done = Acknowledged(writer.name, writer.length, writer.length)
            with partial(done):
                copy(stream, writer, done, seal=seal)
    _warn_of_name(session, done)
    session.result(asdict(done), f"{names.printable(done.segment)} {done.start} {done.end}")


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


def copy(stream: Source, writer: SegmentWriter, done: Acknowledged, *, seal: bool) -> None:
    """Append all of a stream; `done` grows with every block that is acknowledged."""
    ended = False
    for block in blocks(stream):
        done.end = writer.append(block.data, last=block.last, seal=seal and block.last).end
        ended = block.last
    if not ended and (seal or done.start == done.end):
        writer.append(b"", last=True, seal=seal)


@contextmanager
def partial(done: Acknowledged) -> Iterator[None]:
    """Make an error inside the block say how far the append got, and how to go on."""
    try:
        yield
    except (TierfsError, OSError, KeyboardInterrupt) as exc:
        text = (
            f"{done.end - done.start} bytes are acknowledged: {names.printable(done.segment)} {done.start} {done.end}"
        )
        remedy = f"go on behind them with: --expect-offset {done.end}"
        raise Partial(exc, text, remedy=remedy, acknowledged=asdict(done)) from exc


def _warn_of_name(session: Session, done: Acknowledged) -> None:
    warning = names.hadoop_warning(done.segment) if done.start == 0 else None
    if warning is not None:
        session.warn(warning)
