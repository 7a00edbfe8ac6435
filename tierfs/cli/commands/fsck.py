"""tierfs fsck: is everything there, and as the records say?"""

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
@click.option("--deep", is_flag=True, help="Also read every byte of both tiers and check it.")
@click.option("--repair", is_flag=True, help="Mend what can be proved right; only while nobody holds the store.")
@yes_option
def fsck(session: Session, deep: bool, repair: bool, yes: bool) -> None:
    """Check the store: its metadata, its local files, its objects and its journal.

    One line for each finding; with --json one object per line, the last one the summary. Nothing is changed
    without --repair, and --repair destroys nothing: bytes that no copy has are recorded as lost, after a question
    that is asked once (--yes answers it), and are taken back when they are there again. docs/recovery.md tells what
    each finding means, and what to do about it.

    \b
    Exit codes:
       0  nothing is wrong (notes, as of orphans and extents known to be lost, do not count)
       1  what was wrong was mended, and no byte is lost by it
      11  nothing is wrong, but a part could not be checked now
      74  something is wrong (run it with --repair, or do what the line says), or bytes are recorded as lost now
    """
    if yes and not repair:
        raise click.UsageError("--yes needs --repair: nothing is asked without it")
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
    """Asks once, before the first bytes are recorded as lost: the answer is for all of this run."""

    def __init__(self, *, yes: bool) -> None:
        self._answer: bool | None = True if yes else None

    def __call__(self, segment: str, lost_bytes: int) -> bool:
        """Whether they, and all that are found later, may be. Without a terminal nobody can say so."""
        if self._answer is None:
            question = (
                f"{printable(segment)}: no copy has {output.size(lost_bytes)} of it. Record them as lost, "
                "and without asking again all further bytes that this run finds in no copy?"
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
    found = outcome.finding
    return {
        "kind": found.kind.value,
        "severity": found.severity.name.lower(),
        "subject": found.subject,
        "message": found.message,
        "start": None if found.range is None else found.range.start,
        "end": None if found.range is None else found.range.end,
        "tier": None if found.place is None or found.place.tier is None else found.place.tier.name.lower(),
        "repair": None if found.mend is None else found.mend.value,
        "remedy": found.remedy,
        "mended": outcome.mended,
        "lost_bytes": outcome.lost_bytes,
        "left": outcome.left,
    }


def _text(outcome: CheckOutcome) -> str:
    """One line, and below it what mends it or mended it; on a terminal both in its width."""
    found = outcome.finding
    level = "LOST" if outcome.lost_bytes else "MENDED" if outcome.mended else found.severity.name
    lines = [f"{level:<6}  {found.kind.value:<{_KIND_WIDTH}}  {printable(found.subject)}: {printable(found.message)}"]
    lines += [f"{_INDENT}{printable(line)}" for line in _help(outcome, found)]
    return "\n".join(output.wrapped(line, _INDENT) for line in lines)


def _help(outcome: CheckOutcome, found: Finding) -> list[str]:
    if outcome.lost_bytes:
        return [f"recorded as lost: {output.size(outcome.lost_bytes)}, until they are there again and prove right"]
    if outcome.mended:
        return []
    if outcome.left is not None:
        return [f"not mended: {outcome.left}"]
    if found.mend is not None:
        return [f"--repair would {found.mend.value}"]
    return [found.remedy] if found.remedy else []


def _summary(summary: Summary) -> str:
    looked = ", ".join(
        output.count(number, noun)
        for number, noun in (
            (summary.segments, "segment"),
            (summary.chunks, "chunk"),
            (summary.objects, "object"),
            (summary.files, "file"),
        )
    )
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in summary.seconds.items())
    left, notes = output.count(summary.damaged, "finding"), output.count(summary.notes, "note")
    wrong = f"{left} left, {summary.mended} mended, {notes}"
    if summary.lost_bytes:
        wrong = f"{wrong}; {output.size(summary.lost_bytes)} recorded as lost"
    lines = [f"checked {looked} ({times})", wrong if summary.damaged or summary.mended or summary.notes else "clean"]
    if summary.unchecked:
        lines.append(f"not checked: {printable(summary.unchecked)}")
    return "\n".join(lines)
