"""Define tierfs cat: write a segment's bytes to stdout."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tierfs.base.bytes.checksum import Buffer
from tierfs.base.words.names import printable
from tierfs.base.words.types import ByteRange, ReadPriority
from tierfs.engine.metadata import directories
from tierfs.engine.metadata.records import SegmentRecord
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import read_priority_option, since_option, until_option
from tierfs.faces.cli.parameter_types import Size
from tierfs.faces.cli.paths import each, paths_argument
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.reading.times import TimePlace


@command("cat")
@paths_argument("segments", metavar="SEGMENT...")
@click.option(
    "--from", "start", type=Size(), metavar="N", help="Offset of the first byte  [default: the segment's start]"
)
@click.option(
    "--to",
    "end",
    type=Size(),
    metavar="N",
    help="Offset after the last byte, at most the segment's end  [default: all]",
)
@since_option
@until_option
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Print only the last N lines, as tail -n does.")
@click.option("-f", "--follow", is_flag=True, help="Continue with appended bytes until the segment is sealed.")
@read_priority_option
def cat(
    session: Session,
    segments: tuple[str, ...],
    start: int | None,
    end: int | None,
    since: int | None,
    until: int | None,
    tail: int | None,
    follow: bool,
    read_priority: ReadPriority | None,
) -> None:
    """Write the bytes of segments to stdout, one after the other.

    Offsets are the segment's own: its first byte is at its start offset. Times are those of messages in ledgers of
    Pulsar's entries and in commit logs of RocketMQ. In other segments they are the times at which chunks were complete,
    so that complete chunks are printed.
    """
    if (since is not None and start is not None) or (until is not None and end is not None):
        raise click.UsageError("--since and --from are mutually exclusive, and so are --until and --to")
    if tail is not None and (start is not None or since is not None):
        raise click.UsageError(f"--tail and --{'from' if since is None else 'since'} are mutually exclusive")
    if follow and len(segments) > 1:
        raise click.UsageError("--follow supports only one segment")
    if follow and (end is not None or until is not None):
        raise click.UsageError(f"--{'to' if until is None else 'until'} and --follow are mutually exclusive")
    output = _Stdout()

    def write(name: str) -> None:
        with store.metadata.read() as txn:
            record = directories.segment_by_name(txn, name)
        begin, stop = start, None if end is None else min(end, record.length)
        if since is not None or until is not None:
            wanted = _bounds(session, store, record, since, until, read_priority)
            begin = wanted.start if since is not None else begin
            stop = wanted.end if until is not None else stop
            stop = None if stop is None else max(stop, record.start_offset if begin is None else begin)
        if tail is not None:
            from tierfs.reading.last_lines import start_of_last_lines

            last = record.length if stop is None else max(stop, record.start_offset)
            begin = start_of_last_lines(store.reader(), record, tail, last, read_priority)
        if follow:
            from tierfs.reading.stream import follow_segment

            follow_segment(store.reader(), record, begin, read_priority, output)
        else:
            from tierfs.reading.stream import copy_segment

            copy_segment(store.reader(), record, begin, stop, read_priority, output.write)
        output.flush()

    with session.open_store(looks=True) as store:
        each(session, store, segments, write)


def _bounds(
    session: Session,
    store: Store,
    record: SegmentRecord,
    since: int | None,
    until: int | None,
    priority: ReadPriority | None,
) -> ByteRange:
    """Return the bytes of a segment from one time to another; with those of the whole chunks where only these have
    times, which a note says."""
    from tierfs.reading.times import place_of

    def place(time_ms: int | None) -> TimePlace | None:
        return None if time_ms is None else place_of(store.metadata, store.reader, record, time_ms, priority)

    first, after = place(since), place(until)
    if any(known is not None and known.offset < known.end_offset for known in (first, after)):
        session.note(
            f"{printable(record.name)}: selected by the times of its chunks; the first and last are printed whole"
        )
    start = record.start_offset if first is None else first.offset
    end = record.length if after is None else after.end_offset
    return ByteRange(start, max(start, end))


class _Stdout:
    """Standard output as bytes."""

    def __init__(self) -> None:
        self._file = sys.stdout.buffer

    def write(self, data: Buffer) -> None:
        """Write bytes, possibly only to the buffer."""
        with _interruptible():
            self._file.write(data)

    def flush(self) -> None:
        """Write the buffer."""
        with _interruptible():
            self._file.flush()

    def check(self) -> None:
        """Raise BrokenPipeError if the reader of a pipe went away; without a write nothing else reports it."""
        poll = select.poll()
        poll.register(self._file.fileno(), 0)  # errors are always reported
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a write that its reader blocks; trio would defer it to its next own wait."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield  # SIGINT is ignored
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
