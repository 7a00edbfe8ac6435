"""Read and check the bytes of segments: tierfs check with paths."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.bytes import ranges
from tierfs.base.words.names import printable
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.paths import each
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.upkeep.check.scrub.verify import BadRange, Verified

# Lines below one segment: they fit on a terminal.
_MOST_RUNS = 20

# Width of such a line, without its indent.
_LINE_COLUMNS = 100


def check_segments(session: Session, paths: tuple[str, ...]) -> None:
    from tierfs.app.check import verify as verify_below

    segments = damaged = read_bytes = 0

    def work(name: str) -> None:
        nonlocal segments, damaged, read_bytes
        with progress_line(session) as show:
            for verified in verify_below(store, name, show):
                segments, damaged, read_bytes = segments + 1, damaged + (not verified.ok), read_bytes + verified.bytes
                if session.json or not verified.ok or session.verbosity >= 0:
                    session.result(_verified_data(verified), _verified_text(verified))

    with session.open_store(looks=True) as store:
        each(session, store, paths, work)
    if not session.json:
        what = f"{output.count(segments, 'segment')} verified, {output.size(read_bytes)} read"
        session.done({}, f"{what}; {damaged} damaged" if damaged else what)
    if damaged:
        raise click.exceptions.Exit(errors.EXIT_DAMAGED)


def _verified_data(verified: Verified) -> dict[str, Any]:
    return {
        **output.fields(verified, "segment=name ok start_offset length read_bytes=bytes"),
        "crc32c": output.checksum(verified.crc32c),
        "bad": [output.fields(bad, "tier start=range.start end=range.end error=why") for bad in verified.bad],
        "lost": [output.fields(lost) for lost in verified.lost],
        "tables": [output.fields(table, "object=name error=why") for table in verified.tables],
        "marks_changed": verified.marked,
    }


def _verified_text(verified: Verified) -> str:
    """Return a line for the segment, and one for each run of bytes that a copy lacks, in however many objects."""
    name, crc = printable(verified.name), output.checksum(verified.crc32c)
    if verified.ok:
        empty = not verified.bytes and verified.length == verified.start_offset
        seen = "it has objects; to check them: tierfs ledger verify" if verified.objects else "nothing to verify"
        return f"ok       {crc}  {name}{f' (0 bytes: {seen})' if empty else ''}"
    lines = [f"{output.size(sum(lost.length_bytes for lost in verified.lost))} lost"] if verified.lost else []
    runs = [f"lost: bytes {lost.start} to {lost.end}" for lost in verified.lost]
    for (tier, fault), group in groupby(sorted(verified.bad, key=_kind), key=_kind):
        bad = list(group)
        joined = ranges.union(part.range for part in bad)
        lines.append(f"{output.size(sum(part.length_bytes for part in joined))} of the {tier} copy {fault}")
        runs += [f"{tier}: bytes {part.start} to {part.end} {fault}" for part in joined]
        runs.append(f"{tier}: {bad[0].why}")
    if verified.tables:
        lines.append(f"tables of {output.count(len(verified.tables), 'object')} damaged")
        runs += [f"cold: {table.why}; no byte is lost by this: {table.name}" for table in verified.tables]
    if len(runs) > _MOST_RUNS:
        runs[_MOST_RUNS:] = [f"and {len(runs) - _MOST_RUNS} more; --json lists all"]
    # An error may contain a key of any length.
    shown = [text if len(text) <= _LINE_COLUMNS else f"{text[: _LINE_COLUMNS - 1]}…" for text in map(printable, runs)]
    head = f"DAMAGED  {crc or '-':<8}  {name}: {', '.join(lines)}"
    return "\n".join([head, *(f"         {line}" for line in shown)])


def _kind(bad: BadRange) -> tuple[str, str]:
    return bad.tier.name.lower(), bad.fault.value
