"""tierfs offload and tierfs evict: moving bytes between the tiers by command."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import format
from tierfs.cli.lazy import command
from tierfs.cli.progress import perform_shown
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.background.upload import OffloadReport
    from tierfs.background.work import EvictReport


@command("offload")
@click.argument("path", default="")
@click.option("--no-wait", is_flag=True, help="Leave it to the store's holder and return at once.")
def offload(session: Session, path: str, no_wait: bool) -> None:
    """Make everything below PATH cold; without PATH, all there is.

    Every byte acknowledged before this is in the bucket, and named by its journal, when it returns; but for those of
    ledgers that are open. While a mount or daemon holds the store, it does the work; Ctrl-C then only ends the waiting.
    """
    from tierfs.background.perform import request
    from tierfs.background.verbs import OFFLOAD

    with session.open_store() as store:
        name = store.segment_of_path(path)
        if no_wait:
            number = request(store, OFFLOAD, name)
            session.done({"path": name, "request": number}, f"request {number}; see how far it is: tierfs status")
            return
        done = perform_shown(session, store, OFFLOAD, name, {}, "offloading")
    if done.ledger_bytes:
        session.warn(f"{format.size(done.ledger_bytes)} of open ledgers stay on this disk alone until they are closed")
    session.done({"path": name, **asdict(done)}, _offloaded(name, done))


def _offloaded(name: str, done: OffloadReport) -> str:
    where, already = printable(name) or "/", format.size(done.already_cold_bytes)
    if not done.objects:
        return f"nothing to offload below {where}; {already} of the local bytes are cold"
    moved = f"{format.size(done.bytes)} of {format.count(done.segments, 'segment')}"
    return f"offloaded {moved} in {format.count(done.objects, 'object')}; {already} were cold already"


@command("evict")
@click.argument("path", default="")
@click.option("--force", is_flag=True, help="Also where the read priority is local-only.")
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
def evict(session: Session, path: str, force: bool, dry_run: bool) -> None:
    """Drop the local bytes below PATH that are safely cold; without PATH, all there are.

    Bytes that are not cold are never dropped.
    """
    from tierfs.background.verbs import DRY_RUN, EVICT, FORCE, flags

    with session.open_store() as store:
        name = store.segment_of_path(path)
        done = perform_shown(session, store, EVICT, name, flags({FORCE: force, DRY_RUN: dry_run}), "evicting")
    session.done({"path": name, "dry_run": dry_run, **asdict(done)}, _evicted(name, done, dry_run=dry_run))


def _evicted(name: str, done: EvictReport, *, dry_run: bool) -> str:
    verb = "would evict" if dry_run else "evicted"
    went = f"{verb} {format.size(done.bytes)} in {format.count(done.chunks, 'chunk')}"
    lines = [went if done.chunks else f"nothing to evict below {printable(name) or '/'}"]
    lines += [f"  kept {format.size(size)}: {printable(reason)}" for reason, size in sorted(done.reasons.items())]
    return "\n".join(lines)
