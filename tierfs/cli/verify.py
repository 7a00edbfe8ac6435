"""tierfs verify: every byte below a path against its checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.progress import progress_bar
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.fsck.verify import Verified

_EXIT_DAMAGED = 74


@command("verify")
@click.argument("path", default="")
def verify(session: Session, path: str) -> None:
    """Read every byte below PATH from every tier that holds it, and check it; without PATH, all there are.

    One line for each segment: ok and its CRC32C, the one that `tierfs info` tells, or what is damaged in
    which tier. Bad copies are marked suspect: reads prefer others, and those are not evicted. The exit code
    is 74 when a byte is damaged or lost, even if another copy of it is good. To mend it: tierfs fsck --deep
    --repair.
    """
    from tierfs.composition.verifying import verify as verify_below

    segments = damaged = read_bytes = 0
    with session.open_store() as store, progress_bar(session, "verifying") as show:
        for found in verify_below(store, store.segment_of_path(path), show):
            segments, damaged, read_bytes = segments + 1, damaged + (not found.ok), read_bytes + found.bytes
            if session.json or not found.ok or session.verbosity >= 0:
                session.result(_data(found), _text(found))
    if not session.json:
        what = f"{format.count(segments, 'segment')} verified, {format.size(read_bytes)} read"
        session.done({}, f"{what}; {damaged} damaged" if damaged else what)
    if damaged:
        raise click.exceptions.Exit(_EXIT_DAMAGED)


def _data(found: Verified) -> dict[str, Any]:
    return {
        "segment": found.name,
        "ok": found.ok,
        "start_offset": found.start_offset,
        "length": found.length,
        "read_bytes": found.bytes,
        "crc32c": _crc(found),
        "bad": [
            {"tier": bad.tier.name.lower(), "start": bad.range.start, "end": bad.range.end, "error": bad.why}
            for bad in found.bad
        ],
        "lost": [{"start": lost.start, "end": lost.end} for lost in found.lost],
        "marks_changed": found.marked,
    }


def _crc(found: Verified) -> str | None:
    return None if found.crc32c is None else f"{found.crc32c:08x}"


def _text(found: Verified) -> str:
    name = printable(found.name)
    if found.ok:
        return f"ok       {_crc(found)}  {name}"
    lines = [f"DAMAGED  {_crc(found) or '-':<8}  {name}"]
    lines += [
        f"         {bad.tier.name.lower()}: bytes {bad.range.start} to {bad.range.end}: {printable(bad.why)}"
        for bad in found.bad
    ]
    return "\n".join([*lines, *(f"         lost: bytes {lost.start} to {lost.end}" for lost in found.lost)])
