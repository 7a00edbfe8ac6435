"""Define tierfs check: compare files, objects and journal with the records, read bytes, and repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.names import printable
from tierfs.faces.cli import errors, output
from tierfs.faces.cli.commands.check_segments import check_segments
from tierfs.faces.cli.confirm import is_terminal
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import dry_run_option, yes_option
from tierfs.faces.cli.paths import WHOLE, paths_argument
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.check import CheckOutcome, Summary
    from tierfs.upkeep.check.findings import Finding

_EXIT_MENDED = 1
_KIND_WIDTH = len("chunk-without-object")
_INDENT = " " * len("REPAIRED  ")


@command("check")
@paths_argument(optional=True, metavar="[PATH]...")
@click.option("--read", "deep", is_flag=True, help="Also read and check every byte of both tiers.")
@click.option("--repair", is_flag=True, help="Repair from verified data; fails while a mount or daemon runs.")
@dry_run_option("Show what --repair would repair, and repair nothing.")
@yes_option
def check(session: Session, paths: tuple[str, ...], deep: bool, repair: bool, dry_run: bool, yes: bool) -> None:
    """Check the store: its metadata, its local files, its objects and its journal; with PATH, bytes of segments.

    Without PATH it prints one line for each finding; with --json one object per line, the summary last. Without
    --repair nothing is changed, and --repair deletes no data: bytes without a valid copy are recorded as lost, after
    one confirmation (--yes confirms), and are recovered when they reappear. docs/recovery.md explains each finding and
    its remedy.

    With PATH it reads and checks every copy of every byte at or below it, in both tiers (/ is the whole store), and
    prints one line for each segment: ok and its CRC32C, as in tierfs info, or the sizes of missing, damaged or lost
    bytes by tier, with a line for each run of them. Bad copies are marked suspect: reads prefer other copies, and these
    are not evicted. A mark is removed, and lost bytes are recovered, when a whole chunk verifies.

    \b
    Exit codes:
       0  no problem (notes, such as orphans and ranges already recorded as lost, do not count)
       1  all problems were repaired, without lost bytes
      11  no problem found, but a part could not be checked now
      74  a problem remains (run it with --repair, or follow its line), or this run recorded bytes as lost; with
          PATH: a byte is damaged or lost, even if it has another valid copy
    """
    if yes and not repair:
        raise click.UsageError("--yes needs --repair: only a repair prompts")
    if paths == WHOLE:
        _check_store(session, deep=deep, repair=repair and not dry_run, yes=yes)
    elif repair:
        raise click.UsageError("--repair is for the whole store: give no PATH")
    else:
        check_segments(session, paths)


def _check_store(session: Session, *, deep: bool, repair: bool, yes: bool) -> None:
    from tierfs.app.check import Checking, Options

    answer = True if yes else None

    def may_lose(segment: str, lost_bytes: int) -> bool:
        """Ask before the first bytes are recorded as lost; the answer holds for the run, no without a terminal."""
        nonlocal answer
        if answer is None:
            question = (
                f"{printable(segment)}: {output.size(lost_bytes)} have no valid copy. Record them as lost, "
                "and all other bytes without a copy in this run?"
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
