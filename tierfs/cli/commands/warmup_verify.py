"""Define tierfs warmup, which fills the disk cache, and tierfs verify, which checks every byte below a path."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from tierfs import ranges
from tierfs.cli import output
from tierfs.cli.errors import EXIT_DAMAGED, Partial
from tierfs.cli.group import command, each, paths_argument
from tierfs.cli.progress import progress_line
from tierfs.cli.session import Session
from tierfs.errors import TierfsError
from tierfs.names import printable
from tierfs.parallel import Progress

if TYPE_CHECKING:
    from tierfs.fsck.scrub.verify import BadRange, Verified


@command("warmup")
@paths_argument(metavar="PATH...")
def warmup(session: Session, paths: tuple[str, ...]) -> None:
    """Fill the disk cache with the cold bytes at or below each PATH.

    If a mount has the cache, this command asks the mount to fill it; otherwise this process fills it.
    Bytes in the cache are not fetched again. If not everything fits, only the beginning is fetched.
    """
    from tierfs.app.fill_cache import warm_up

    done_bytes = 0
    with session.open_store() as store, progress_line(session) as show:

        def report(progress: Progress) -> None:
            nonlocal done_bytes
            done_bytes = progress.done_bytes
            show(progress)

        names = [name for path in paths for name in store.names_of(path)]
        try:
            done = warm_up(store, names, report)
        except (TierfsError, KeyboardInterrupt) as exc:
            if not done_bytes:
                raise
            progress = f"{output.size(done_bytes)} were warmed up"
            raise Partial(exc, progress, remedy="to continue, run it again", warmed_bytes=done_bytes) from exc
    if done.left_out_bytes:
        cold, fit = output.size(done.cold_bytes), output.size(done.cold_bytes - done.left_out_bytes)
        session.warn(f"{cold} are cold, and {fit} of it fit into the disk cache: only the beginning was warmed up")
    if done.lost_bytes:
        session.warn(f"{done.lost_bytes} bytes are lost; to locate them: tierfs map SEGMENT")
    places, skipped = ", ".join(map(output.path, names)), f"{output.size(done.local_bytes)} on the local disk"
    text = f"nothing to warm up at {places}: no cold bytes, {skipped}"
    if done.cold_bytes:
        cached = f"the disk cache holds {output.size(done.held_bytes)} of {places}"
        through = f", filled by the mount at {printable(done.mountpoint)}" if done.mountpoint else ""
        text = f"{cached}, {output.size(done.already_held_bytes)} of it from before{through}; skipped {skipped}"
    session.done({"paths": names, **output.fields(done)}, text)


# Lines below one segment: they fit on a terminal.
_MOST_RUNS = 20

# Width of such a line, without its indent.
_LINE_COLUMNS = 100


@command("verify")
@paths_argument(optional=True, metavar="[PATH]...")
def verify(session: Session, paths: tuple[str, ...]) -> None:
    """Read and check every byte below each PATH in every tier that holds it; without PATH, of the whole store.

    Prints one line for each segment: ok and its CRC32C, as in `tierfs info`, or the sizes of missing, damaged or
    lost bytes by tier, with a line for each run of them. Bad copies are marked suspect: reads prefer other copies,
    and these are not evicted. A mark is removed, and lost bytes are recovered, when a whole chunk verifies. The exit
    code is 74 if a byte is damaged or lost, even if another copy of it is good. To repair: tierfs fsck --deep
    --repair.
    """
    from tierfs.app.fsck import verify as verify_below

    segments = damaged = read_bytes = 0

    def work(name: str) -> None:
        nonlocal segments, damaged, read_bytes
        with progress_line(session) as show:
            for verified in verify_below(store, name, show):
                segments, damaged, read_bytes = segments + 1, damaged + (not verified.ok), read_bytes + verified.bytes
                if session.json or not verified.ok or session.verbosity >= 0:
                    session.result(_data(verified), _text(verified))

    with session.open_store(looks=True) as store:
        each(session, store, paths, work)
    if not session.json:
        what = f"{output.count(segments, 'segment')} verified, {output.size(read_bytes)} read"
        session.done({}, f"{what}; {damaged} damaged" if damaged else what)
    if damaged:
        raise click.exceptions.Exit(EXIT_DAMAGED)


def _data(verified: Verified) -> dict[str, Any]:
    return {
        **output.fields(verified, "segment=name ok start_offset length read_bytes=bytes"),
        "crc32c": output.checksum(verified.crc32c),
        "bad": [output.fields(bad, "tier start=range.start end=range.end error=why") for bad in verified.bad],
        "lost": [output.fields(lost) for lost in verified.lost],
        "marks_changed": verified.marked,
    }


def _text(verified: Verified) -> str:
    """Return a line for the segment, and one for each run of bytes that a copy lacks, in however many objects."""
    name, crc = printable(verified.name), output.checksum(verified.crc32c)
    if verified.ok:
        return f"ok       {crc}  {name}"
    lines = [f"{output.size(sum(span.length_bytes for span in verified.lost))} lost"] if verified.lost else []
    runs = [f"lost: bytes {lost.start} to {lost.end}" for lost in verified.lost]
    for (tier, fault), group in groupby(sorted(verified.bad, key=_kind), key=_kind):
        bad = list(group)
        joined = ranges.union(part.range for part in bad)
        lines.append(f"{output.size(sum(span.length_bytes for span in joined))} of the {tier} copy {fault}")
        runs += [f"{tier}: bytes {span.start} to {span.end} {fault}" for span in joined]
        runs.append(f"{tier}: {bad[0].why}")
    if len(runs) > _MOST_RUNS:
        runs[_MOST_RUNS:] = [f"and {len(runs) - _MOST_RUNS} more; --json lists all"]
    # An error may contain a key of any length.
    shown = [text if len(text) <= _LINE_COLUMNS else f"{text[: _LINE_COLUMNS - 1]}…" for text in map(printable, runs)]
    head = f"DAMAGED  {crc or '-':<8}  {name}: {', '.join(lines)}"
    return "\n".join([head, *(f"         {line}" for line in shown)])


def _kind(bad: BadRange) -> tuple[str, str]:
    return bad.tier.name.lower(), bad.fault.value
