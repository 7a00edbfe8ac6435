"""tierfs append, seal."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import click

from tierfs import names
from tierfs.app import Store
from tierfs.cli.context import Context, pass_context
from tierfs.cli.format import SIZE, size
from tierfs.cli.output import emit, warn
from tierfs.errors import InvalidRequest, TierfsError
from tierfs.segments.writer import SegmentWriter

BLOCK_BYTES = 4 * 1024 * 1024
"""Bytes per acknowledged append: a sync each, and what a crash may cost in unacknowledged work."""


@click.command("append")
@click.argument("segment")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--expect-offset", type=SIZE, help="Append only if the segment is exactly this long.")
@click.option("--seal", is_flag=True, help="End the segment afterwards.")
@click.option("--take-over", is_flag=True, help="Fence a living writer.")
@pass_context
def append_command(
    context: Context, segment: str, files: tuple[Path, ...], expect_offset: int | None, seal: bool, take_over: bool
) -> None:
    """Append FILES, or standard input, to SEGMENT. Creates it and its directories."""
    with context.open() as store, ExitStack() as stack:
        name = store.segment_of_path(segment)
        sources = [stack.enter_context(_open(path)) for path in files] or [sys.stdin.buffer]
        writer = store.engine.open_writer(name, expected_offset=expect_offset, take_over=take_over)
        start = writer.length
        try:
            _append_all(writer, sources, seal=seal)
        except TierfsError as exc:
            raise _half_way(exc, name, start, _acknowledged(store, name, start)) from exc
        finally:
            store.engine.close_writer(writer)
        _acknowledge(context, writer.name, start, writer.length)
        warning = names.hadoop_warning(name)
        if warning and not context.as_json:
            warn(context, warning)


@click.command("seal")
@click.argument("segment")
@pass_context
def seal_command(context: Context, segment: str) -> None:
    """End SEGMENT: it takes no more bytes. Repeating it is fine."""
    with context.open() as store:
        name = store.segment_of_path(segment)
        sealed = store.engine.seal(name)
    if context.as_json:
        emit({"segment": name, "length": sealed.length, "sealed": True})
    else:
        print(f"{names.printable(name)} is sealed at {sealed.length} ({size(sealed.length)})")


def _open(path: Path) -> BinaryIO:
    if path.is_dir():
        raise InvalidRequest(f"{path} is a directory", remedy=f"tierfs ingest {path} --into DIR")
    return path.open("rb")


def _append_all(writer: SegmentWriter, sources: list[BinaryIO], *, seal: bool) -> None:
    """Append block by block. Files are read one block ahead, so that the last commit can hand the chunk over.

    A pipe's bytes are appended as they come: what was written to it must not wait for what comes next.
    """
    held = b""
    for source in sources:
        live = not stat.S_ISREG(os.fstat(source.fileno()).st_mode)
        for block in _pipe_blocks(source) if live else _file_blocks(source):
            if held:
                writer.append(held)
            held = block
            if live:
                writer.append(held)
                held = b""
    writer.append(held, last=True, seal=seal)


def _file_blocks(source: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: source.read(BLOCK_BYTES), b"")


def _pipe_blocks(source: BinaryIO) -> Iterator[bytes]:
    """What is there, up to a block; waits only while there is nothing."""
    fd = source.fileno()
    while first := os.read(fd, BLOCK_BYTES):
        parts = [first]
        length = len(first)
        while length < BLOCK_BYTES and select.select([fd], [], [], 0)[0]:
            more = os.read(fd, BLOCK_BYTES - length)
            if not more:
                break
            parts.append(more)
            length += len(more)
        yield b"".join(parts)


def _acknowledged(store: Store, name: str, start: int) -> int:
    """How far the segment got."""
    from tierfs.metadata import directories

    with store.metadata.read() as txn:
        entry = directories.find(txn, name)
        return directories.segment_by_name(txn, name).length if entry is not None else start


def _half_way(error: TierfsError, name: str, start: int, end: int) -> TierfsError:
    """The error, told what of this command is durable all the same."""
    if end > start:
        message = f"{error}; bytes {start} to {end} of {names.printable(name)} are acknowledged"
        remedy = f"go on behind them with --expect-offset {end}" + (f"; {error.remedy}" if error.remedy else "")
        error.args = (message,)
        error.remedy = remedy
    return error


def _acknowledge(context: Context, name: str, start: int, end: int) -> None:
    if context.as_json:
        emit({"segment": name, "start": start, "end": end})
    else:
        print(f"{names.printable(name)} {start} {end}")
