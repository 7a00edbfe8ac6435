"""tierfs gc: what waits to be deleted, what nothing names, and uploads that nobody will finish."""

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
@click.option("--delete", is_flag=True, help="Delete what is due, and orphans; end dead uploads.")
@click.option("--grace", metavar="TIME", help="How old an orphan or upload has to be  [default: offload.grace_s]")
@click.option("--accept-clock", is_flag=True, help="Take the wall clock for right, after it was wrong.")
@yes_option
def gc(session: Session, delete: bool, grace: str | None, accept_clock: bool, yes: bool) -> None:
    """List garbage: what waits to be deleted, orphans, which no record names, and dead uploads, which nobody
    will finish. Deletes and aborts with --delete.

    Garbage is deleted by itself once it is due; orphans and dead uploads only by this. Finding them lists all
    chunk files, all objects and all unfinished uploads of the cold tier. With --json one object per line.

    With --accept-clock it does nothing else: what was dated into the future, by a clock that ran ahead and was set
    back, is dated now, and deletions that paused for it go on.
    """
    from tierfs.app import verbs
    from tierfs.holder.verbs import COLLECT, GRACE_S, perform

    grace_s = None if grace is None else _seconds(grace)
    if accept_clock and delete:
        raise InvalidRequest("--accept-clock and --delete are two commands", remedy="first: tierfs gc --accept-clock")
    with session.open_store() as store:
        if accept_clock:
            _accept_clock(session, store, yes=yes)
            return
        grace_s = store.settings.offload.grace_s if grace_s is None else grace_s
        if delete:
            done = perform(store, COLLECT, "", {GRACE_S: str(grace_s)})
            deleted = f"deleted {output.count(done.deleted, 'object')}, {output.size(done.bytes)}"
            if done.aborted:
                deleted += f"; ended {output.count(done.aborted, 'dead upload')}"
            session.done(asdict(done), deleted)
            _raise_failed(done)
            return
        found = verbs.garbage(store, grace_s=grace_s)
    for line in _json_lines(found) if session.json else _text_lines(found):
        click.echo(line)


def _accept_clock(session: Session, store: Store, *, yes: bool) -> None:
    from tierfs.app import verbs

    now = output.timestamp(store.clock.now_ms())
    if not yes:
        ask("gc --accept-clock", f"take {now} for the right time? Everything older than its policy allows goes then.")
    done = verbs.accept_clock(store)
    later = [
        output.count(number, what)
        for number, what in ((done.segments, "segment"), (done.objects, "object"), (done.deletions, "deletion"))
        if number
    ]
    dated = f"; dated later, now dated so: {', '.join(later)}" if later else ""
    session.done(asdict(done), f"{now} is taken for the right time{dated}")


def _raise_failed(done: Collected) -> None:
    """Raise the first deletion that failed, as the kind of error that it was."""
    if done.failed:
        raise errors.named(done.error_kind)(
            f"{output.count(done.failed, 'deletion')} failed, the first: {done.error}",
            remedy="they stay listed and are tried again; see all of them with: tierfs gc",
        )


def _seconds(text: str) -> int:
    try:
        return round(float(parse_duration(text)))
    except ValueError as exc:
        raise InvalidRequest(f"--grace {text!r}: {exc}") from exc


def _json_lines(found: GarbageReport) -> list[str]:
    rows = [_row(row) for row in found.rows] + [_orphan(one) for one in found.orphans]
    rows += [_upload(one) for one in found.uploads] + [_intent(one) for one in found.intents]
    return [json.dumps(row) for row in [*rows, *map(_superseded, found.superseded)]]


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


def _orphan(one: Orphan) -> dict[str, Any]:
    return {"kind": "orphan", "tier": one.tier.name.lower(), "name": one.name, "bytes": one.length}


def _upload(one: DeadUpload) -> dict[str, Any]:
    return {
        "kind": "upload",
        "tier": "cold",
        "name": one.name,
        "bytes": one.length,
        "started": output.timestamp(one.started_ms),
        "upload_id": one.upload_id or None,
    }


def _intent(one: IntentRecord) -> dict[str, Any]:
    size, started = one.end_offset - one.start_offset, output.timestamp(one.created_ms)
    return {"kind": "intent", "tier": "cold", "name": one.name, "bytes": size, "started": started}


def _superseded(one: StoredObject) -> dict[str, Any]:
    return {"kind": "superseded", "tier": "cold", "name": one.name, "bytes": one.length_bytes}


def _text_lines(found: GarbageReport) -> list[str]:
    rows = [_garbage(f"due {output.clock_time(row.due_ms)}", row, row.last_error) for row in found.rows]
    rows += [_garbage("orphan", one, "") for one in found.orphans]
    rows += [_dead(one) for one in found.uploads]
    rows += [_unfinished(one) for one in found.intents]
    rows += [("superseded", "cold", output.size(one.length_bytes), printable(one.name)) for one in found.superseded]
    garbage, orphans = output.count(len(found.rows), "object"), output.count(len(found.orphans), "orphan")
    size = output.size(
        sum(row.length for row in found.rows)
        + sum(one.length for one in found.orphans)
        + sum(one.length_bytes for one in found.superseded)
    )
    uploads = f", {output.count(len(found.uploads), 'dead upload')}" if found.uploads else ""
    intents = f", {output.count(len(found.intents), 'object')} of an owner that died" if found.intents else ""
    kept = f", {output.count(len(found.superseded), 'superseded object')} of the journal" if found.superseded else ""
    return [
        *output.lines(rows, *_COLUMNS),
        f"{garbage} to be deleted, {orphans}{uploads}{intents}{kept}; {size} in all",
    ]


def _garbage(what: str, one: GarbageRecord | Orphan, error: str) -> _Cells:
    because = f": {printable(error)}" if error else ""
    return what, one.tier.name.lower(), output.size(one.length), printable(one.name) + because


def _dead(one: DeadUpload) -> _Cells:
    size = output.size(one.length) if one.length else "-"
    return f"dead {output.clock_time(one.started_ms)}", "cold", size, printable(one.name)


def _unfinished(one: IntentRecord) -> _Cells:
    """An object that may be there or not; the next holder makes it garbage."""
    since, size = f"unfinished {output.clock_time(one.created_ms)}", output.size(one.end_offset - one.start_offset)
    return since, "cold", size, printable(one.name)
