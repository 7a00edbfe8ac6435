"""Define tierfs gc: list and delete garbage, orphans and dead uploads."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tierfs import errors
from tierfs.cli import output
from tierfs.cli.group import command
from tierfs.cli.options import ask, yes_option
from tierfs.cli.session import Session
from tierfs.errors import InvalidRequest
from tierfs.names import printable
from tierfs.units import parse_duration

if TYPE_CHECKING:
    from tierfs.app.store import Store
    from tierfs.app.verbs import GarbageReport
    from tierfs.chunkstore.protocol import StoredObject
    from tierfs.garbage.collect import Collected
    from tierfs.garbage.dead_uploads import DeadUpload
    from tierfs.garbage.orphans import Orphan
    from tierfs.metadata.records import GarbageRecord, IntentRecord


_Cells = tuple[str, str, str, str]
_COLUMNS = ("<31", "<5", ">10", "<")


@command("gc")
@click.option("--delete", is_flag=True, help="Delete garbage that is due and orphans; abort dead uploads.")
@click.option("--grace", metavar="TIME", help="Minimum age of orphans and dead uploads  [default: offload.grace_s]")
@click.option("--accept-clock", is_flag=True, help="Accept the wall clock as correct after it was wrong.")
@yes_option
def gc(session: Session, delete: bool, grace: str | None, accept_clock: bool, yes: bool) -> None:
    """List garbage that waits for its deletion, orphans (files and objects without a record), and dead uploads
    (unfinished and abandoned); with --delete, delete and abort them.

    Garbage is deleted automatically once it is due; orphans and dead uploads only by this command. It lists all
    chunk files, all objects and all unfinished uploads of the cold tier to find them. With --json one object per line.

    --accept-clock does only this: times in the future, recorded by a clock that ran ahead and was set back, are set to
    the current time, and deletions that paused because of them continue.
    """
    from tierfs.app import verbs
    from tierfs.holder.verbs import COLLECT, GRACE_S, perform

    grace_s = None if grace is None else _seconds(grace)
    if accept_clock and delete:
        raise InvalidRequest(
            "--accept-clock and --delete are mutually exclusive", remedy="first: tierfs gc --accept-clock"
        )
    with session.open_store() as store:
        if accept_clock:
            _accept_clock(session, store, yes=yes)
            return
        grace_s = store.settings.offload.grace_s if grace_s is None else grace_s
        if delete:
            done = perform(store, COLLECT, "", {GRACE_S: str(grace_s)})
            deleted = f"deleted {output.count(done.deleted, 'object')}, {output.size(done.bytes)}"
            if done.aborted:
                deleted += f"; aborted {output.count(done.aborted, 'dead upload')}"
            session.done(asdict(done), deleted)
            _raise_failed(done)
            return
        report = verbs.garbage(store, grace_s=grace_s)
    for line in _json_lines(report) if session.json else _text_lines(report):
        click.echo(line)


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


def _seconds(text: str) -> int:
    try:
        return round(float(parse_duration(text)))
    except ValueError as exc:
        raise InvalidRequest(f"--grace {text!r}: {exc}") from exc


def _json_lines(report: GarbageReport) -> list[str]:
    rows = [*map(_row, report.rows), *map(_orphan, report.orphans), *map(_upload, report.uploads)]
    rows += [*map(_intent, report.intents), *map(_superseded, report.superseded)]
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
    rows = [_garbage(f"due {output.clock_time(row.due_ms)}", row, row.last_error) for row in report.rows]
    rows += [_garbage("orphan", orphan, "") for orphan in report.orphans]
    rows += [_dead(upload) for upload in report.uploads]
    rows += [_unfinished(intent) for intent in report.intents]
    rows += [("superseded", "cold", output.size(stored.length_bytes), printable(stored.name)) for stored in superseded]
    garbage, orphans = output.count(len(report.rows), "object"), output.count(len(report.orphans), "orphan")
    size = output.size(
        sum(row.length for row in report.rows)
        + sum(orphan.length for orphan in report.orphans)
        + sum(stored.length_bytes for stored in superseded)
    )
    uploads = f", {output.count(len(report.uploads), 'dead upload')}" if report.uploads else ""
    intents = f", {output.count(len(report.intents), 'object')} of an owner that died" if report.intents else ""
    kept = f", {output.count(len(superseded), 'superseded object')} of the journal" if superseded else ""
    return [
        *output.lines(rows, *_COLUMNS),
        f"{garbage} to be deleted, {orphans}{uploads}{intents}{kept}; {size} in total",
    ]


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
