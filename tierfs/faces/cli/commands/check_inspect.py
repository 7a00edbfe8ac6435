"""Define tierfs check: compare files, objects and journal with the records, read bytes, and repair; and tierfs inspect.

`inspect` shows what one object says of itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.bytes import ranges
from tierfs.base.words.names import printable
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.group import WHOLE, command, each, paths_argument, server_options
from tierfs.faces.cli.options import is_terminal, yes_option
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.fsck import CheckOutcome, Summary
    from tierfs.app.recovery.object_headers import ObjectHeader
    from tierfs.upkeep.check.findings import Finding
    from tierfs.upkeep.check.scrub.verify import BadRange, Verified


_EXIT_MENDED = 1
_KIND_WIDTH = len("chunk-without-object")
_INDENT = " " * len("REPAIRED  ")


@command("check")
@paths_argument(optional=True, metavar="[PATH]...")
@click.option("--read", "deep", is_flag=True, help="Also read and check every byte of both tiers.")
@click.option(
    "--repair", is_flag=True, help="Repair what verified data can prove; fails while a process holds the store."
)
@yes_option
def check(session: Session, paths: tuple[str, ...], deep: bool, repair: bool, yes: bool) -> None:
    """Check the store: its metadata, its local files, its objects and its journal; with PATH, bytes of segments.

    Without PATH it prints one line for each finding; with --json one object per line, the summary last. Nothing is
    changed without --repair, and --repair destroys nothing: bytes that no copy has are recorded as lost, after one
    confirmation (--yes confirms), and are recovered when they reappear. docs/recovery.md explains each finding and
    its remedy.

    With PATH it reads and checks every byte at or below it in every tier that holds it (/ is the whole store), and
    prints one line for each segment: ok and its CRC32C, as in tierfs info, or the sizes of missing, damaged or lost
    bytes by tier, with a line for each run of them. Bad copies are marked suspect: reads prefer other copies, and these
    are not evicted. A mark is removed, and lost bytes are recovered, when a whole chunk verifies.

    \b
    Exit codes:
       0  no problem (notes, as of orphans and extents known to be lost, do not count)
       1  all problems were repaired, and no byte is lost by it
      11  no problem, but a part could not be checked now
      74  a problem remains (run it with --repair, or follow its line), or bytes were recorded as lost now; with
          PATH: a byte is damaged or lost, even if another copy of it is good
    """
    if yes and not repair:
        raise click.UsageError("--yes needs --repair: only a repair asks")
    if paths == WHOLE:
        _check_store(session, deep=deep, repair=repair, yes=yes)
    elif repair:
        raise click.UsageError("--repair is for the whole store: give no PATH")
    else:
        _check_segments(session, paths)


def _check_store(session: Session, *, deep: bool, repair: bool, yes: bool) -> None:
    from tierfs.app.fsck import Checking, Options

    answer = True if yes else None

    def may_lose(segment: str, lost_bytes: int) -> bool:
        """Ask before the first bytes are recorded as lost; the answer holds for the run, no without a terminal."""
        nonlocal answer
        if answer is None:
            question = (
                f"{printable(segment)}: no copy has {output.size(lost_bytes)} of it. Record them as lost, "
                "and all further bytes without a copy in this run?"
            )
            with session.printing():
                answer = is_terminal() and click.confirm(question, err=True)
        return answer

    def tell(outcome: CheckOutcome) -> None:
        if session.json or session.verbosity >= 0 or outcome.finding.severity:
            session.result(_data(outcome), _text(outcome))

    with progress_line(session) as show:
        options = Options(deep=deep, repair=repair, may_lose=may_lose)
        summary = Checking(session.require_store_path(), options, tell, show).run()
    session.done({"kind": "summary", **output.fields(summary)}, _summary(summary))
    unproved = errors.EXIT_UNCHECKED if summary.unchecked else _EXIT_MENDED if summary.mended else 0
    raise click.exceptions.Exit(errors.EXIT_DAMAGED if summary.damaged or summary.lost else unproved)


def _data(outcome: CheckOutcome) -> dict[str, Any]:
    finding = outcome.finding
    data = output.fields(finding, "kind severity subject message")
    data |= {"start": None, "end": None} if finding.range is None else output.fields(finding.range)
    data["tier"] = None if finding.place is None else output.plain(finding.place.tier)
    return data | output.fields(finding, "repair=mend remedy") | output.fields(outcome, "mended lost_bytes left")


def _text(outcome: CheckOutcome) -> str:
    """Return one line, with its repair or remedy below; both wrapped to the width of a terminal."""
    finding = outcome.finding
    level = "LOST" if outcome.lost_bytes else "REPAIRED" if outcome.mended else finding.severity.name
    message = f"{printable(finding.subject)}: {printable(finding.message)}"
    lines = [f"{level:<8}  {finding.kind.value:<{_KIND_WIDTH}}  {message}"]
    lines += [f"{_INDENT}{printable(line)}" for line in _help(outcome, finding)]
    return "\n".join(output.wrapped(line, _INDENT) for line in lines)


def _help(outcome: CheckOutcome, finding: Finding) -> list[str]:
    if outcome.lost_bytes:
        return [f"recorded as lost: {output.size(outcome.lost_bytes)}, until they reappear and verify"]
    if outcome.mended:
        return []
    if outcome.left is not None:
        return [f"not repaired: {outcome.left}"]
    if finding.mend is not None:
        return [f"--repair would {finding.mend.value}"]
    return [finding.remedy] if finding.remedy else []


def _summary(summary: Summary) -> str:
    counts = [output.count(getattr(summary, f"{noun}s"), noun) for noun in ("segment", "chunk", "object", "file")]
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in summary.seconds.items())
    remaining, notes = output.count(summary.damaged, "finding"), output.count(summary.notes, "note")
    result = f"{remaining} left, {summary.mended} repaired, {notes}"
    if summary.lost_bytes:
        result = f"{result}; {output.size(summary.lost_bytes)} recorded as lost"
    lines = [
        f"checked {', '.join(counts)} ({times})",
        result if summary.damaged or summary.mended or summary.notes else "clean",
    ]
    if summary.unchecked:
        lines.append(f"not checked: {printable(summary.unchecked)}")
    return "\n".join(lines)


# Lines below one segment: they fit on a terminal.
_MOST_RUNS = 20

# Width of such a line, without its indent.
_LINE_COLUMNS = 100


def _check_segments(session: Session, paths: tuple[str, ...]) -> None:
    from tierfs.app.fsck import verify as verify_below

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
        "marks_changed": verified.marked,
    }


def _verified_text(verified: Verified) -> str:
    """Return a line for the segment, and one for each run of bytes that a copy lacks, in however many objects."""
    name, crc = printable(verified.name), output.checksum(verified.crc32c)
    if verified.ok:
        empty = not verified.bytes and verified.length == verified.start_offset
        seen = "its objects exist: tierfs ledger verify reads them" if verified.objects else "nothing to verify"
        return f"ok       {crc}  {name}{f' (0 bytes: {seen})' if empty else ''}"
    lines = [f"{output.size(sum(lost.length_bytes for lost in verified.lost))} lost"] if verified.lost else []
    runs = [f"lost: bytes {lost.start} to {lost.end}" for lost in verified.lost]
    for (tier, fault), group in groupby(sorted(verified.bad, key=_kind), key=_kind):
        bad = list(group)
        joined = ranges.union(part.range for part in bad)
        lines.append(f"{output.size(sum(part.length_bytes for part in joined))} of the {tier} copy {fault}")
        runs += [f"{tier}: bytes {part.start} to {part.end} {fault}" for part in joined]
        runs.append(f"{tier}: {bad[0].why}")
    if len(runs) > _MOST_RUNS:
        runs[_MOST_RUNS:] = [f"and {len(runs) - _MOST_RUNS} more; --json lists all"]
    # An error may contain a key of any length.
    shown = [text if len(text) <= _LINE_COLUMNS else f"{text[: _LINE_COLUMNS - 1]}…" for text in map(printable, runs)]
    head = f"DAMAGED  {crc or '-':<8}  {name}: {', '.join(lines)}"
    return "\n".join([head, *(f"         {line}" for line in shown)])


def _kind(bad: BadRange) -> tuple[str, str]:
    return bad.tier.name.lower(), bad.fault.value


# Rows of an index that are shown; --json has all.
_PARTS_SHOWN = 10

_TIME = "_ms"


@command("inspect")
@click.argument("objects", nargs=-1, required=True, metavar="OBJECT...")
@server_options()
def inspect(session: Session, objects: tuple[str, ...], **options: Any) -> None:
    """Show what objects say of themselves: name, header or index, and user metadata.

    OBJECT is a name in the store's cold tier, as info --map --json, gc and check print it; a URL like s3://BUCKET/KEY;
    or a file, as a path that begins with / or ./. Known are chunks, packs, the data and index objects of ledgers,
    Pulsar's too, entries of the journal, checkpoints, dumps, and marks. URLs and files need no store.

    Only headers and indexes are read; tierfs check reads all bytes. The exit code is 74 if an object is damaged or
    contradicts itself.
    """
    from tierfs.app.inspect import Server, inspect

    damaged = False
    with session.open_store(looks=True) if session.has_store else nullcontext() as store:
        for number, wanted in enumerate(objects):
            header = inspect(wanted, store, Server(**options))
            if number and not session.json:
                click.echo()
            rows = [(printable(name), printable(text)) for name, text in _header_rows(header)]
            session.result(_header_data(header), output.table(rows))
            damaged |= bool(header.wrong)
    if damaged:
        raise click.exceptions.Exit(errors.EXIT_DAMAGED)


def _header_data(header: ObjectHeader) -> dict[str, Any]:
    data = {"object": header.name, "kind": header.kind, **output.fields(header.stored, "bytes=length_bytes etag")}
    data |= {"modified": output.timestamp(header.stored.modified_ms), "metadata": dict(header.metadata)}
    return data | {"header": _plain(header.fields), "parts": header.parts, "wrong": header.wrong}


def _header_rows(header: ObjectHeader) -> Iterator[tuple[str, str]]:
    yield from [("object", header.name), ("kind", header.kind), ("size", f"{header.stored.length_bytes:,} B")]
    yield from [("etag", header.stored.etag), ("modified", output.timestamp(header.stored.modified_ms) or "-")]
    yield from ((name, _shown(value)) for name, value in _plain(header.fields).items())
    yield from (("", _shown(part)) for part in header.parts[:_PARTS_SHOWN])
    if len(header.parts) > _PARTS_SHOWN:
        yield "", f"and {output.count(len(header.parts) - _PARTS_SHOWN, 'more row')}: --json"
    yield from (("metadata", f"{name} = {value}") for name, value in header.metadata.items())
    yield from (("WRONG", text) for text in header.wrong)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with their times as such."""
    return {
        name.removesuffix(_TIME): output.timestamp(value) if name.endswith(_TIME) else value
        for name, value in fields.items()
    }


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    return "-" if value is None else str(value)
