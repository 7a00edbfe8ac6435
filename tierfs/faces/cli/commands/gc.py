"""Define tierfs gc: list and delete garbage, orphans and dead uploads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tierfs.base.words.errors import InvalidRequest, named
from tierfs.base.words.names import printable
from tierfs.faces.cli import output
from tierfs.faces.cli.commands.trash import removed_data, shown_name
from tierfs.faces.cli.confirm import ask
from tierfs.faces.cli.group import command
from tierfs.faces.cli.options import dry_run_option, yes_option
from tierfs.faces.cli.parameter_types import Duration
from tierfs.faces.cli.progress import perform_shown, progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.app.verbs import GarbageReport

# A row as JSON data, and as cells: what it is, its tier, its size and its name.
_Row = tuple[dict[str, Any], tuple[str, str, str, str]]


@command("gc")
@click.option("--delete", is_flag=True, help="Delete due garbage and orphans; abort dead uploads.")
@click.option(
    "--trash", is_flag=True, help="With --delete: also empty the trash; nothing in it can be restored after that."
)
@click.option(
    "--grace",
    type=Duration(),
    metavar="TIME",
    help="Minimum age of orphans and dead uploads  [default: offload.grace_s]",
)
@click.option("--accept-clock", is_flag=True, help="Accept the current time as correct after the clock was wrong.")
@dry_run_option("Only list, also with --delete; the default.")
@yes_option
def gc(
    session: Session, delete: bool, trash: bool, grace: float | None, accept_clock: bool, dry_run: bool, yes: bool
) -> None:
    """List the trash, garbage that waits for its deletion, orphans (files and objects without a record), and dead
    uploads (unfinished and abandoned). With --delete, delete and abort all of these except the trash.

    Garbage is deleted automatically once it is due; orphans and dead uploads only by this command. It lists all
    chunk files, all objects and all unfinished uploads of the cold tier to find them. With --json one object per line.

    --accept-clock only corrects times: those in the future, recorded while the clock ran ahead, are set to the current
    time, and deletions that paused because of them continue.
    """
    from tierfs.app import verbs
    from tierfs.upkeep.holder.verbs import COLLECT, GRACE_S

    if accept_clock and dry_run:
        raise click.UsageError("--accept-clock and --dry-run are mutually exclusive")
    if accept_clock and delete:
        raise InvalidRequest(
            "--accept-clock and --delete are mutually exclusive", remedy="run first: tierfs gc --accept-clock"
        )
    if trash and not delete:
        raise InvalidRequest("--trash needs --delete", remedy="list the trash: tierfs ls --removed")
    with session.open_store() as store:
        if accept_clock:
            _accept_clock(session, store, yes=yes)
            return
        grace_s = store.settings.offload.grace_s if grace is None else round(grace)
        if delete and not dry_run:
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
                    remedy="they are retried; to list them: tierfs gc",
                )
            return
        with progress_line(session) as show:
            report = verbs.garbage(store, grace_s=grace_s, report=show)
    rows, removed = [*_rows(report)], [*_trash_rows(report)]
    lines = output.lines([cells for _, cells in (*removed, *rows)], "<31", "<5", ">10", "<")
    session.rows([data for data, _ in (*rows, *removed)], [*lines, _counts(report)])


def _empty_trash(store: Store, *, yes: bool) -> None:
    from tierfs.app import verbs
    from tierfs.engine.segments import trash

    with store.metadata.read() as txn:
        removals = output.count(sum(1 for _ in trash.removed(txn)), "removal")
    if not yes:
        ask("gc --delete --trash", f"empty the trash? {removals} in it cannot be restored after that.")
    verbs.empty_trash(store)


def _accept_clock(session: Session, store: Store, *, yes: bool) -> None:
    from tierfs.app import verbs

    now = output.timestamp(store.clock.now_ms())
    if not yes:
        ask(
            "gc --accept-clock",
            f"accept {now} as the right time? All data older than its policy allows is deleted then.",
        )
    done = verbs.accept_clock(store)
    counts = [(done.segments, "segment"), (done.objects, "object"), (done.deletions, "deletion")]
    later = [output.count(number, what) for number, what in counts if number]
    dated = f"; corrected times in the future: {', '.join(later)}" if later else ""
    session.done(done, f"{now} is accepted as the right time{dated}")


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
        (len(report.intents), "object", " of an owner that crashed"),
        (len(report.superseded), "superseded object", " of the journal"),
        (len(report.trash), "removal", " in the trash"),
    ]
    counts += "".join(f", {output.count(number, noun)}{rest}" for number, noun, rest in more if number)
    total = sum(row.length for row in report.rows) + sum(orphan.length for orphan in report.orphans)
    total += sum(each.removal.bytes for each in report.trash) + sum(stored.length_bytes for stored in report.superseded)
    return f"{counts}; {output.size(total)} in total"
