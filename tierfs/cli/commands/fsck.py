"""Define tierfs fsck: compare files, objects and journal with the records, and repair."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tierfs.cli import output
from tierfs.cli.group import command
from tierfs.cli.options import is_terminal, yes_option
from tierfs.cli.output import progress_bar
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.app.fsck import CheckOutcome, Summary
    from tierfs.fsck.findings import Finding

_EXIT_MENDED = 1
_EXIT_UNCHECKED = 11
_EXIT_DAMAGED = 74
_KIND_WIDTH = len("chunk-without-object")
_INDENT = " " * len("DAMAGE  ")


@command("fsck")
@click.option("--deep", is_flag=True, help="Also read and check every byte of both tiers.")
@click.option(
    "--repair", is_flag=True, help="Repair what verified data can prove; fails while a process holds the store."
)
@yes_option
def fsck(session: Session, deep: bool, repair: bool, yes: bool) -> None:
    """Check the store: its metadata, its local files, its objects and its journal.

    Prints one line for each finding; with --json one object per line, the summary last. Nothing is changed
    without --repair, and --repair destroys nothing: bytes that no copy has are recorded as lost, after one
    confirmation (--yes confirms), and are recovered when they reappear. docs/recovery.md explains each finding and
    its remedy.

    \b
    Exit codes:
       0  no problem (notes, as of orphans and extents known to be lost, do not count)
       1  all problems were mended, and no byte is lost by it
      11  no problem, but a part could not be checked now
      74  a problem remains (run it with --repair, or follow its line), or bytes were recorded as lost now
    """
    if yes and not repair:
        raise click.UsageError("--yes needs --repair: only a repair asks")
    from tierfs.app.fsck import Checking, Options

    with progress_bar(session, "checking") as show:

        def tell(outcome: CheckOutcome) -> None:
            if session.json or session.verbosity >= 0 or outcome.finding.severity:
                session.result(_data(outcome), _text(outcome))

        options = Options(deep=deep, repair=repair, may_lose=MayLose(yes=yes))
        checking = Checking(session.require_store_path(), options, tell, show)
        summary = checking.run()
    session.done({"kind": "summary", **asdict(summary)}, _summary(summary))
    raise click.exceptions.Exit(_exit_code(summary))


class MayLose:
    """Ask once, before the first bytes are recorded as lost; the answer holds for the run."""

    def __init__(self, *, yes: bool) -> None:
        self._answer: bool | None = True if yes else None

    def __call__(self, segment: str, lost_bytes: int) -> bool:
        """Return whether these bytes and all later ones may be recorded as lost; False without a terminal."""
        if self._answer is None:
            question = (
                f"{printable(segment)}: no copy has {output.size(lost_bytes)} of it. Record them as lost, "
                "and all further bytes without a copy in this run?"
            )
            self._answer = is_terminal() and click.confirm(question, err=True)
        return self._answer


def _exit_code(summary: Summary) -> int:
    if summary.damaged or summary.lost:
        return _EXIT_DAMAGED
    if summary.unchecked:
        return _EXIT_UNCHECKED
    return _EXIT_MENDED if summary.mended else 0


def _data(outcome: CheckOutcome) -> dict[str, Any]:
    finding = outcome.finding
    return {
        "kind": finding.kind.value,
        "severity": finding.severity.name.lower(),
        "subject": finding.subject,
        "message": finding.message,
        "start": None if finding.range is None else finding.range.start,
        "end": None if finding.range is None else finding.range.end,
        "tier": None if finding.place is None or finding.place.tier is None else finding.place.tier.name.lower(),
        "repair": None if finding.mend is None else finding.mend.value,
        "remedy": finding.remedy,
        "mended": outcome.mended,
        "lost_bytes": outcome.lost_bytes,
        "left": outcome.left,
    }


def _text(outcome: CheckOutcome) -> str:
    """Return one line, with its repair or remedy below; both wrapped to the width of a terminal."""
    finding = outcome.finding
    level = "LOST" if outcome.lost_bytes else "MENDED" if outcome.mended else finding.severity.name
    message = f"{printable(finding.subject)}: {printable(finding.message)}"
    lines = [f"{level:<6}  {finding.kind.value:<{_KIND_WIDTH}}  {message}"]
    lines += [f"{_INDENT}{printable(line)}" for line in _help(outcome, finding)]
    return "\n".join(output.wrapped(line, _INDENT) for line in lines)


def _help(outcome: CheckOutcome, finding: Finding) -> list[str]:
    if outcome.lost_bytes:
        return [f"recorded as lost: {output.size(outcome.lost_bytes)}, until they reappear and verify"]
    if outcome.mended:
        return []
    if outcome.left is not None:
        return [f"not mended: {outcome.left}"]
    if finding.mend is not None:
        return [f"--repair would {finding.mend.value}"]
    return [finding.remedy] if finding.remedy else []


def _summary(summary: Summary) -> str:
    checked = ", ".join(
        output.count(number, noun)
        for number, noun in (
            (summary.segments, "segment"),
            (summary.chunks, "chunk"),
            (summary.objects, "object"),
            (summary.files, "file"),
        )
    )
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in summary.seconds.items())
    remaining, notes = output.count(summary.damaged, "finding"), output.count(summary.notes, "note")
    result = f"{remaining} left, {summary.mended} mended, {notes}"
    if summary.lost_bytes:
        result = f"{result}; {output.size(summary.lost_bytes)} recorded as lost"
    lines = [f"checked {checked} ({times})", result if summary.damaged or summary.mended or summary.notes else "clean"]
    if summary.unchecked:
        lines.append(f"not checked: {printable(summary.unchecked)}")
    return "\n".join(lines)
