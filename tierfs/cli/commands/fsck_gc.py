"""Define tierfs fsck: compare files, objects and journal with the records, and repair.

Define tierfs gc: list and delete garbage, orphans and dead uploads.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tierfs import errors
from tierfs.cli import output
from tierfs.cli.commands.rm_restore import removed_data, shown_name
from tierfs.cli.group import command
from tierfs.cli.options import Duration, ask, is_terminal, yes_option
from tierfs.cli.progress import perform_shown, progress_line
from tierfs.cli.session import Session
from tierfs.errors import InvalidRequest
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.app.fsck import CheckOutcome, Summary
    from tierfs.app.store import Store
    from tierfs.app.verbs import GarbageReport
    from tierfs.chunkstore.protocol import StoredObject
    from tierfs.fsck.findings import Finding
    from tierfs.garbage.collect import Collected
    from tierfs.garbage.dead_uploads import DeadUpload
    from tierfs.garbage.orphans import Orphan
    from tierfs.metadata.records import GarbageRecord, IntentRecord
    from tierfs.segments.trash import Removed


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

    with progress_line(session) as show:

        def tell(outcome: CheckOutcome) -> None:
            if session.json or session.verbosity >= 0 or outcome.finding.severity:
                session.result(_data(outcome), _text(outcome))

        options = Options(deep=deep, repair=repair, may_lose=MayLose(session, yes=yes))
        checking = Checking(session.require_store_path(), options, tell, show)
        summary = checking.run()
    session.done({"kind": "summary", **asdict(summary)}, _summary(summary))
    raise click.exceptions.Exit(_exit_code(summary))


class MayLose:
    """Ask once, before the first bytes are recorded as lost; the answer holds for the run."""

    def __init__(self, session: Session, *, yes: bool) -> None:
        self._session = session
        self._answer: bool | None = True if yes else None

    def __call__(self, segment: str, lost_bytes: int) -> bool:
        """Return whether these bytes and all later ones may be recorded as lost; False without a terminal."""
        if self._answer is None:
            question = (
                f"{printable(segment)}: no copy has {output.size(lost_bytes)} of it. Record them as lost, "
                "and all further bytes without a copy in this run?"
            )
            with self._session.printing():
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


_Cells = tuple[str, str, str, str]
_COLUMNS = ("<31", "<5", ">10", "<")


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

    grace_s = None if grace is None else round(grace)
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
        grace_s = store.settings.offload.grace_s if grace_s is None else grace_s
        if delete:
            if trash:
                _empty_trash(store, yes=yes)
            done = perform_shown(session, store, COLLECT, "", {GRACE_S: str(grace_s)})
            deleted = f"deleted {output.count(done.deleted, 'object')}, {output.size(done.bytes)}"
            if done.aborted:
                deleted += f"; aborted {output.count(done.aborted, 'dead upload')}"
            session.done(asdict(done), deleted)
            _raise_failed(done)
            return
        with progress_line(session) as show:
            report = verbs.garbage(store, grace_s=grace_s, report=show)
    for line in _json_lines(report) if session.json else _text_lines(report):
        click.echo(line)


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
    later = [
        output.count(number, what)
        for number, what in ((done.segments, "segment"), (done.objects, "object"), (done.deletions, "deletion"))
        if number
    ]
    dated = f"; changed to it from later times: {', '.join(later)}" if later else ""
    session.done(asdict(done), f"{now} is accepted as the right time{dated}")


def _raise_failed(done: Collected) -> None:
    """Raise the error of the first failed deletion, with its own class."""
    if done.failed:
        raise errors.named(done.error_kind)(
            f"{output.count(done.failed, 'deletion')} failed, the first: {done.error}",
            remedy="they stay listed and are retried; list them with: tierfs gc",
        )


def _json_lines(report: GarbageReport) -> list[str]:
    rows = [*map(_row, report.rows), *map(_orphan, report.orphans), *map(_upload, report.uploads)]
    rows += [*map(_intent, report.intents), *map(_superseded, report.superseded)]
    rows += [{**removed_data(each), "kind": "trash", "of": each.entry.kind.name.lower()} for each in report.trash]
    return [json.dumps(row) for row in rows]


def _row(row: GarbageRecord) -> dict[str, Any]:
    return {
        "kind": "garbage",
        "tier": row.tier.name.lower(),
        "name": row.name,
        "bytes": row.length,
        "due": output.timestamp(row.due_ms),
        "attempts": row.attempts,
        "error": row.last_error or None,
    }


def _orphan(orphan: Orphan) -> dict[str, Any]:
    return {"kind": "orphan", "tier": orphan.tier.name.lower(), "name": orphan.name, "bytes": orphan.length}


def _upload(upload: DeadUpload) -> dict[str, Any]:
    return {
        "kind": "upload",
        "tier": "cold",
        "name": upload.name,
        "bytes": upload.length,
        "started": output.timestamp(upload.started_ms),
        "upload_id": upload.upload_id or None,
    }


def _intent(intent: IntentRecord) -> dict[str, Any]:
    size, started = intent.end_offset - intent.start_offset, output.timestamp(intent.created_ms)
    return {"kind": "intent", "tier": "cold", "name": intent.name, "bytes": size, "started": started}


def _superseded(stored: StoredObject) -> dict[str, Any]:
    return {"kind": "superseded", "tier": "cold", "name": stored.name, "bytes": stored.length_bytes}


def _text_lines(report: GarbageReport) -> list[str]:
    superseded = report.superseded
    rows = [_in_trash(each) for each in report.trash]
    rows += [_garbage(f"due {output.clock_time(row.due_ms)}", row, row.last_error) for row in report.rows]
    rows += [_garbage("orphan", orphan, "") for orphan in report.orphans]
    rows += [_dead(upload) for upload in report.uploads]
    rows += [_unfinished(intent) for intent in report.intents]
    rows += [("superseded", "cold", output.size(stored.length_bytes), printable(stored.name)) for stored in superseded]
    garbage, orphans = output.count(len(report.rows), "object"), output.count(len(report.orphans), "orphan")
    size = output.size(
        sum(row.length for row in report.rows)
        + sum(each.removal.bytes for each in report.trash)
        + sum(orphan.length for orphan in report.orphans)
        + sum(stored.length_bytes for stored in superseded)
    )
    uploads = f", {output.count(len(report.uploads), 'dead upload')}" if report.uploads else ""
    intents = f", {output.count(len(report.intents), 'object')} of an owner that died" if report.intents else ""
    trash = f", {output.count(len(report.trash), 'removal')} in the trash" if report.trash else ""
    kept = f", {output.count(len(superseded), 'superseded object')} of the journal" if superseded else ""
    return [
        *output.lines(rows, *_COLUMNS),
        f"{garbage} to be deleted, {orphans}{uploads}{intents}{kept}{trash}; {size} in total",
    ]


def _in_trash(removed: Removed) -> _Cells:
    removal = removed.removal
    return f"trash {output.clock_time(removal.due_ms)}", "both", output.size(removal.bytes), shown_name(removed)


def _garbage(label: str, row: GarbageRecord | Orphan, error: str) -> _Cells:
    reason = f": {printable(error)}" if error else ""
    return label, row.tier.name.lower(), output.size(row.length), printable(row.name) + reason


def _dead(upload: DeadUpload) -> _Cells:
    size = output.size(upload.length) if upload.length else "-"
    return f"dead {output.clock_time(upload.started_ms)}", "cold", size, printable(upload.name)


def _unfinished(intent: IntentRecord) -> _Cells:
    """Describe an object that may exist or not; the next holder makes it garbage."""
    size = output.size(intent.end_offset - intent.start_offset)
    return f"unfinished {output.clock_time(intent.created_ms)}", "cold", size, printable(intent.name)
