"""tierfs offload and tierfs evict: moving bytes between the tiers by command.

tierfs consolidate: few large cold objects instead of many small or mostly dead ones.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import output
from tierfs.cli.group import command
from tierfs.cli.output import perform_shown
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.holder.work import EvictReport
    from tierfs.tiering.consolidate_command import ConsolidateReport
    from tierfs.tiering.offload_command import OffloadReport


@command("offload")
@click.argument("path", default="")
@click.option("--no-wait", is_flag=True, help="Leave it to the store's holder and return at once.")
def offload(session: Session, path: str, no_wait: bool) -> None:
    """Make everything below PATH cold; without PATH, all there is.

    Every byte acknowledged before this is in the bucket, and named by its journal, when it returns; but for those of
    ledgers that are open. While a mount or daemon holds the store, it does the work; Ctrl-C then only ends the waiting.
    """
    from tierfs.holder.verbs import OFFLOAD, request

    with session.open_store() as store:
        name = store.segment_of_path(path)
        if no_wait:
            number = request(store, OFFLOAD, name)
            session.done({"path": name, "request": number}, f"request {number}; see how far it is: tierfs status")
            return
        done = perform_shown(session, store, OFFLOAD, name, {}, "offloading")
    if done.ledger_bytes:
        session.warn(f"{output.size(done.ledger_bytes)} of open ledgers stay on this disk alone until they are closed")
    session.done({"path": name, **asdict(done)}, _offloaded(name, done))


def _offloaded(name: str, done: OffloadReport) -> str:
    where, already = printable(name) or "/", output.size(done.already_cold_bytes)
    if not done.objects:
        return f"nothing to offload below {where}; {already} of the local bytes are cold"
    moved = f"{output.size(done.bytes)} of {output.count(done.segments, 'segment')}"
    return f"offloaded {moved} in {output.count(done.objects, 'object')}; {already} were cold already"


@command("evict")
@click.argument("path", default="")
@click.option("--force", is_flag=True, help="Also where the read priority is local-only.")
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
def evict(session: Session, path: str, force: bool, dry_run: bool) -> None:
    """Drop the local bytes below PATH that are safely cold; without PATH, all there are.

    Bytes that are not cold are never dropped.
    """
    from tierfs.holder.verbs import DRY_RUN, EVICT, FORCE, flags

    with session.open_store() as store:
        name = store.segment_of_path(path)
        done = perform_shown(session, store, EVICT, name, flags({FORCE: force, DRY_RUN: dry_run}), "evicting")
    session.done({"path": name, "dry_run": dry_run, **asdict(done)}, _evicted(name, done, dry_run=dry_run))


def _evicted(name: str, done: EvictReport, *, dry_run: bool) -> str:
    verb = "would evict" if dry_run else "evicted"
    went = f"{verb} {output.size(done.bytes)} in {output.count(done.chunks, 'chunk')}"
    lines = [went if done.chunks else f"nothing to evict below {printable(name) or '/'}"]
    lines += [f"  kept {output.size(size)}: {printable(reason)}" for reason, size in sorted(done.reasons.items())]
    return "\n".join(lines)


@command("consolidate")
@click.argument("path", default="")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
def consolidate(session: Session, path: str, dry_run: bool) -> None:
    """Join small neighbouring cold objects of each segment below PATH; without PATH, of all segments.

    Objects whose bytes are mostly cut off are copied without them. The server copies by itself what it can;
    each new object is read back once and checked. Old objects go after the grace period, so that open files
    read on. How large objects get is the policy object_bytes.
    """
    from tierfs.holder.verbs import CONSOLIDATE, DRY_RUN, flags

    with session.open_store() as store:
        name = store.segment_of_path(path)
        done = perform_shown(session, store, CONSOLIDATE, name, flags({DRY_RUN: dry_run}), "consolidating")
    session.done({"path": name, "dry_run": dry_run, **asdict(done)}, _consolidated(name, done, dry_run=dry_run))


def _consolidated(name: str, done: ConsolidateReport, *, dry_run: bool) -> str:
    if not done.objects_after and not done.merged_chunks:
        return f"nothing to consolidate below {printable(name) or '/'}"
    lines = []
    if done.objects_after:
        verb = "would make" if dry_run else "made"
        what = f"{output.count(done.objects_after, 'object')} of {output.count(done.objects_before, 'chunk')}"
        lines.append(f"{verb} {what} in {output.count(done.segments, 'segment')}, {output.size(done.bytes)}")
    if done.objects_after and not dry_run:
        server, client = output.size(done.bytes - done.client_bytes), output.size(done.client_bytes)
        lines.append(f"  {server} copied by the server, {client} uploaded again")
    if done.merged_chunks:
        verb = "would join" if dry_run else "joined"
        lines.append(f"{verb} {output.count(done.merged_chunks, 'chunk')} to neighbours in the same object")
    return "\n".join(lines)
