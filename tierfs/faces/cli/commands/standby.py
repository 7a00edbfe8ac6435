"""Define tierfs standby: show a standby, pause its takeover, or start it."""

from __future__ import annotations

import click

from tierfs.base.words.texts import clock_time
from tierfs.faces.cli import confirm, output
from tierfs.faces.cli.group import command
from tierfs.faces.cli.progress import progress_line
from tierfs.faces.cli.session import Session
from tierfs.upkeep.holder.standby_note import Taken


@command("standby")
@click.option("--pause", metavar="WHY", help="Prevent automatic takeovers by this standby until --resume.")
@click.option("--resume", is_flag=True, help="Allow automatic takeovers again.")
@click.option("--now", is_flag=True, help="Take the bucket over now: this replica becomes the store of the bucket.")
@click.option("--yes", is_flag=True, help="With --now: take over without confirmation.")
def standby(session: Session, pause: str | None, resume: bool, now: bool, yes: bool) -> None:
    """Show the standby in the directory given by --store, or the standbys of an owner.

    A standby is a replica that takes its bucket over when the owner shows no sign of life (tierfs replica --standby).
    Its mount or daemon does it. --pause is for a planned stop of the owner.

    --now works on every replica. The previous owner can only be read from then on. Bytes that it has not offloaded stay
    on its disk: if it still runs, first run tierfs offload / there.
    """
    if sum((pause is not None, resume, now)) > 1:
        raise click.UsageError("use one of --pause, --resume and --now")
    from tierfs.app import standby_orders
    from tierfs.app.standby_rows import describe, taken_lines
    from tierfs.upkeep.holder import standby_note

    with session.open_store() as store:
        if pause is not None:
            standby_orders.pause(store, pause)
        elif resume:
            standby_orders.resume(store)
        elif now:
            if not yes:
                confirm.ask("standby --now", "take the bucket over? the previous owner can only be read then")
            with progress_line(session) as show:
                taken = standby_orders.take_over_now(store, show)
            session.done(_data(taken), "\n".join(taken_lines(taken)))
            return
        note = standby_note.read(store.paths)
        takes_over = store.settings.standby.takeover_after_s > 0
        held, replica = store.is_held, store.is_replica
        with store.metadata.read() as txn:
            superseded_by = 0 if replica else txn.store.journal.fenced_by_epoch
        text = describe(
            note,
            store.clock,
            is_replica=replica,
            is_held=held,
            takes_over=takes_over,
            superseded_by=superseded_by,
        )
        data = output.fields(note, "phase why paused other_host after_s silent_s local_only_bytes")
        data |= {
            "superseded_by": superseded_by,
            "age_s": note.age_s(store.clock),
            "taken": None if note.taken is None else _data(note.taken),
        }
        session.result(data, "\n".join(text))


def _data(taken: Taken) -> dict[str, object]:
    data = output.fields(taken, "from_host epoch why segments incomplete more local_only_bytes")
    return {**data, "at": clock_time(taken.at_ms)}
