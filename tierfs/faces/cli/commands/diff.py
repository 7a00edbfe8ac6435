"""Define tierfs diff: compare the bytes of two segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tierfs.base.words.errors import TierfsError
from tierfs.base.words.names import printable
from tierfs.engine.metadata import directories
from tierfs.engine.segments import stat
from tierfs.faces.cli import errors
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import read_priority_option
from tierfs.faces.cli.paths import path_argument
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.base.words.types import ReadPriority
    from tierfs.engine.metadata.records import SegmentRecord

_EXIT_DIFFERENT, _EXIT_TROUBLE = 1, 2


@command("diff")
@path_argument("first", metavar="SEGMENT")
@path_argument("second", metavar="OTHER")
@read_priority_option
def diff(session: Session, first: str, second: str, read_priority: ReadPriority | None) -> None:
    """Compare the bytes of two segments, and print the first offset at which they differ; nothing if they are equal.

    Segments of equal length with equal CRC32Cs are equal, and are not read. Others are read up to the first difference.
    Of a trimmed segment the remaining bytes are compared.

    \b
    Exit codes:
       0  equal
       1  different
       2  a segment is missing, or cannot be read
    """
    try:
        with session.open_store(looks=True) as store:
            names = [store.segment_of_path(text) for text in (first, second)]
            with store.metadata.read() as txn:
                left, right = (directories.segment_by_name(txn, name) for name in names)
                crcs = [stat.segment_crc(txn, segment) for segment in (left, right)]
            is_known = None not in crcs and crcs[0] == crcs[1] and left.range.length_bytes == right.range.length_bytes
            equal_bytes = (
                None if is_known or left.id == right.id else _first_difference(store, left, right, read_priority)
            )
    except TierfsError as exc:
        errors.show(replace(errors.describe(exc), exit_code=_EXIT_TROUBLE), session)
        raise click.exceptions.Exit(_EXIT_TROUBLE) from exc
    if equal_bytes is None:
        return
    _print(session, names, (left, right), equal_bytes)
    raise click.exceptions.Exit(_EXIT_DIFFERENT)


def _first_difference(
    store: Store, left: SegmentRecord, right: SegmentRecord, priority: ReadPriority | None
) -> int | None:
    from tierfs.reading.difference import first_difference

    return first_difference(store.reader(), left, right, priority)


def _print(session: Session, names: Sequence[str], segments: Sequence[SegmentRecord], equal_bytes: int) -> None:
    shown = [printable(name) for name in names]
    offsets = [segment.start_offset + equal_bytes for segment in segments]
    ended = [name for name, at, segment in zip(shown, offsets, segments, strict=True) if at == segment.length]
    where = str(offsets[0]) if offsets[0] == offsets[1] else f"{offsets[0]} of {shown[0]}, {offsets[1]} of {shown[1]}"
    why = f": {ended[0]} ends there" if ended else ""
    text = f"{shown[0]} and {shown[1]} differ from offset {where} on{why}"
    data = {"segments": names, "offsets": offsets, "equal_bytes": equal_bytes}
    session.result(data, text)
