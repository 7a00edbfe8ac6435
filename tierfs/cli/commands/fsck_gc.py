"""Define tierfs fsck: compare files, objects and journal with the records, and repair.

Define tierfs gc: list and delete garbage, orphans and dead uploads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tierfs.cli import errors, output
from tierfs.cli.commands.rm_restore import removed_data, shown_name
from tierfs.cli.group import command
from tierfs.cli.options import Duration, ask, is_terminal, yes_option
from tierfs.cli.progress import perform_shown, progress_line
from tierfs.cli.session import Session
from tierfs.errors import InvalidRequest, named
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.app.fsck import CheckOutcome, Summary
    from tierfs.app.store import Store
    from tierfs.app.verbs import GarbageReport
    from tierfs.fsck.findings import Finding


_EXIT_MENDED = 1
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
    counts = [output.count(getattr(summary, f"{noun}s"), noun) for noun in ("segment", "chunk", "object", "file")]
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in summary.seconds.items())
    remaining, notes = output.count(summary.damaged, "finding"), output.count(summary.notes, "note")
    result = f"{remaining} left, {summary.mended} mended, {notes}"
    if summary.lost_bytes:
        result = f"{result}; {output.size(summary.lost_bytes)} recorded as lost"
    lines = [
        f"checked {', '.join(counts)} ({times})",
        result if summary.damaged or summary.mended or summary.notes else "clean",
    ]
    if summary.unchecked:
        lines.append(f"not checked: {printable(summary.unchecked)}")
    return "\n".join(lines)


@command("gc")
@click.option("--delete", is_flag=True, help="Delete garbage that is due and orphans; abort dead uploads.")
@click.option("--trash", is_flag=True, help="With --delete, empty the trash too: nothing in it can be restored then.")
@click.option(
    "--grace",
    type=Duration(),
    metavar="TIME",
    help="Minimum age of orphans and dead uploads  [default: offload.grace_s]",
)
@click.option("--accept-clock", is_flag=True, help="Accept the wall clock as correct after it was wrong.")
@yes_option
def gc(session: Session, delete: bool, trash: bool, grace: float | None, accept_clock: bool, yes: bool) -> None:
    """List the trash, garbage that waits for its deletion, orphans (files and objects without a record), and dead
    uploads (unfinished and abandoned); with --delete, delete and abort all but the trash.

    Garbage is deleted automatically once it is due; orphans and dead uploads only by this command. It lists all
    chunk files, all objects and all unfinished uploads of the cold tier to find them. With --json one object per line.

    --accept-clock does only this: times in the future, recorded by a clock that ran ahead and was set back, are set to
    the current time, and deletions that paused because of them continue.
    """
    from tierfs.app import verbs
    from tierfs.holder.verbs import COLLECT, GRACE_S

    if accept_clock and delete:
        raise InvalidRequest(
            "--accept-clock and --delete are mutually exclusive", remedy="first: tierfs gc --accept-clock"
        )
    if trash and not delete:
        raise InvalidRequest("--trash goes with --delete", remedy="list the trash: tierfs ls --removed")
    with session.open_store() as store:
        if accept_clock:
            _accept_clock(session, store, yes=yes)
            return
        grace_s = store.settings.offload.grace_s if grace is None else round(grace)
        if delete:
            if trash:
                _empty_trash(store, yes=yes)
            done = perform_shown(session, store, COLLECT, "", {GRACE_S: str(grace_s)})
            deleted = f"deleted {output.count(done.deleted, 'object')}, {output.size(done.bytes)}"
            if done.aborted:
                deleted += f"; aborted {output.count(done.aborted, 'dead upload')}"
            session.done(done, deleted)
            if done.failed:
                raise named(done.error_kind)(
                    f"{output.count(done.failed, 'deletion')} failed, the first: {done.error}",
                    remedy="they stay listed and are retried; list them with: tierfs gc",
                )
            return
        with progress_line(session) as show:
            report = verbs.garbage(store, grace_s=grace_s, report=show)
    rows, removed = [*_rows(report)], [*_trash_rows(report)]
    lines = output.lines([cells for _, cells in (*removed, *rows)], "<31", "<5", ">10", "<")
    session.rows([data for data, _ in (*rows, *removed)], [*lines, _counts(report)])


def _empty_trash(store: Store, *, yes: bool) -> None:
    from tierfs.app import verbs
    from tierfs.segments import trash

    with store.metadata.read() as txn:
        removals = output.count(sum(1 for _ in trash.removed(txn)), "removal")
    if not yes:
        ask("gc --delete --trash", f"empty the trash? {removals} in it cannot be restored then.")
    verbs.empty_trash(store)


def _accept_clock(session: Session, store: Store, *, yes: bool) -> None:
    from tierfs.app import verbs

    now = output.timestamp(store.clock.now_ms())
    if not yes:
        ask(
            "gc --accept-clock",
            f"accept {now} as the right time? Everything older than its policy allows is deleted then.",
        )
    done = verbs.accept_clock(store)
    counts = [(done.segments, "segment"), (done.objects, "object"), (done.deletions, "deletion")]
    later = [output.count(number, what) for number, what in counts if number]
    dated = f"; changed to it from later times: {', '.join(later)}" if later else ""
    session.done(done, f"{now} is accepted as the right time{dated}")


# A row as JSON data, and as cells: what it is, its tier, its size and its name.
_Row = tuple[dict[str, Any], tuple[str, str, str, str]]


def _rows(report: GarbageReport) -> Iterator[_Row]:
    """Yield a row for everything but the trash."""
    clock, size = output.clock_time, output.size
    for row in report.rows:
        data = output.fields(row, "tier name bytes=length due=due_ms attempts")
        reason = f": {printable(row.last_error)}" if row.last_error else ""
        cells = (f"due {clock(row.due_ms)}", data["tier"], size(row.length), printable(row.name) + reason)
        yield {"kind": "garbage", **data, "error": row.last_error or None}, cells
    for orphan in report.orphans:
        data = {"kind": "orphan", **output.fields(orphan, "tier name bytes=length")}
        yield data, ("orphan", data["tier"], size(orphan.length), printable(orphan.name))
    for upload in report.uploads:
        data = {"kind": "upload", "tier": "cold", **output.fields(upload, "name bytes=length started=started_ms")}
        length = size(upload.length) if upload.length else "-"
        cells = (f"dead {clock(upload.started_ms)}", "cold", length, printable(upload.name))
        yield {**data, "upload_id": upload.upload_id or None}, cells
    for intent in report.intents:  # its object may exist or not; the next holder makes it garbage
        length_bytes = intent.end_offset - intent.start_offset
        data = {"kind": "intent", "tier": "cold", "name": intent.name, "bytes": length_bytes}
        cells = (f"unfinished {clock(intent.created_ms)}", "cold", size(length_bytes), printable(intent.name))
        yield {**data, "started": output.timestamp(intent.created_ms)}, cells
    for stored in report.superseded:
        data = {"kind": "superseded", "tier": "cold", **output.fields(stored, "name bytes=length_bytes")}
        yield data, ("superseded", "cold", size(stored.length_bytes), printable(stored.name))


def _trash_rows(report: GarbageReport) -> Iterator[_Row]:
    for each in report.trash:
        due = output.clock_time(each.removal.due_ms)
        data = {**removed_data(each), "kind": "trash", "of": output.plain(each.entry.kind)}
        yield data, (f"trash {due}", "both", output.size(each.removal.bytes), shown_name(each))


def _counts(report: GarbageReport) -> str:
    counts = f"{output.count(len(report.rows), 'object')} to be deleted, {output.count(len(report.orphans), 'orphan')}"
    more = [
        (len(report.uploads), "dead upload", ""),
        (len(report.intents), "object", " of an owner that died"),
        (len(report.superseded), "superseded object", " of the journal"),
        (len(report.trash), "removal", " in the trash"),
    ]
    counts += "".join(f", {output.count(number, noun)}{rest}" for number, noun, rest in more if number)
    total = sum(row.length for row in report.rows) + sum(orphan.length for orphan in report.orphans)
    total += sum(each.removal.bytes for each in report.trash) + sum(stored.length_bytes for stored in report.superseded)
    return f"{counts}; {output.size(total)} in total"
