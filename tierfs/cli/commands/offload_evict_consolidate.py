"""Define tierfs offload and tierfs evict, which move bytes between the tiers, and tierfs consolidate.

Consolidation makes few large cold objects of many small or mostly dead ones.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import output
from tierfs.cli.group import command, each, paths_argument
from tierfs.cli.options import dry_run_option
from tierfs.cli.progress import perform_shown
from tierfs.cli.session import Session
from tierfs.names import printable

if TYPE_CHECKING:
    from tierfs.holder.work import EvictReport
    from tierfs.tiering.consolidate_command import ConsolidateReport
    from tierfs.tiering.offload_command import OffloadReport


@command("offload")
@paths_argument(optional=True, metavar="[PATH]...")
@click.option("--no-wait", is_flag=True, help="Leave the work to the store's holder and return at once.")
def offload(session: Session, paths: tuple[str, ...], no_wait: bool) -> None:
    """Copy all bytes below each PATH to the cold tier; without PATH, all bytes of the store.

    On return, every byte acknowledged before the call is in the bucket and named by its journal, except those of open
    ledgers. While a mount or daemon holds the store, it does the work; Ctrl-C then ends only the wait.
    """
    from tierfs.holder.verbs import OFFLOAD, request

    def work(name: str) -> None:
        if no_wait:
            number = request(store, OFFLOAD, name)
            session.done({"path": name, "request": number}, f"request {number}; see its progress: tierfs status")
            return
        done = perform_shown(session, store, OFFLOAD, name, {})
        if done.ledger_bytes:
            size = output.size(done.ledger_bytes)
            session.warn(f"{size} of open ledgers stay on this disk alone until they are closed")
        session.done({"path": name, **asdict(done)}, _offloaded(name, done))

    with session.open_store() as store:
        each(session, store, paths, work)


def _offloaded(name: str, done: OffloadReport) -> str:
    path, already = printable(name) or "/", output.size(done.already_cold_bytes)
    if not done.objects:
        return f"nothing to offload below {path}; {already} of the local bytes are cold"
    moved = f"{output.size(done.bytes)} of {output.count(done.segments, 'segment')}"
    return f"offloaded {moved} in {output.count(done.objects, 'object')}; {already} were cold already"


@command("evict")
@paths_argument(optional=True, metavar="[PATH]...")
@click.option("--force", is_flag=True, help="Also evict bytes whose read priority is local-only.")
@dry_run_option("Show the bytes to evict, and change nothing.")
def evict(session: Session, paths: tuple[str, ...], force: bool, dry_run: bool) -> None:
    """Drop the local copies of bytes below each PATH that are safely cold; without PATH, of all such bytes.

    Bytes that are not cold are never dropped.
    """
    from tierfs.holder.verbs import DRY_RUN, EVICT, FORCE, flags

    def work(name: str) -> None:
        done = perform_shown(session, store, EVICT, name, flags({FORCE: force, DRY_RUN: dry_run}))
        session.done({"path": name, "dry_run": dry_run, **asdict(done)}, _evicted(name, done, dry_run=dry_run))

    with session.open_store() as store:
        each(session, store, paths, work)


def _evicted(name: str, done: EvictReport, *, dry_run: bool) -> str:
    verb = "would evict" if dry_run else "evicted"
    evicted = f"{verb} {output.size(done.bytes)} in {output.count(done.chunks, 'chunk')}"
    lines = [evicted if done.chunks else f"nothing to evict below {printable(name) or '/'}"]
    lines += [f"  kept {output.size(size)}: {printable(reason)}" for reason, size in sorted(done.reasons.items())]
    return "\n".join(lines)


@command("consolidate")
@paths_argument(optional=True, metavar="[PATH]...")
@dry_run_option("Show the objects to join, and change nothing.")
def consolidate(session: Session, paths: tuple[str, ...], dry_run: bool) -> None:
    """Join small neighbouring cold objects of each segment below each PATH; without PATH, of all segments.

    Objects whose bytes are mostly cut off are copied without them. The server copies the bytes where it can;
    each new object is read back once and checked. Old objects are deleted after the grace period, so that open files
    stay readable. The policy object_bytes sets the size of objects.
    """
    from tierfs.holder.verbs import CONSOLIDATE, DRY_RUN, flags

    def work(name: str) -> None:
        done = perform_shown(session, store, CONSOLIDATE, name, flags({DRY_RUN: dry_run}))
        session.done({"path": name, "dry_run": dry_run, **asdict(done)}, _consolidated(name, done, dry_run=dry_run))

    with session.open_store() as store:
        each(session, store, paths, work)


def _consolidated(name: str, done: ConsolidateReport, *, dry_run: bool) -> str:
    if not done.objects_after and not done.merged_chunks:
        return f"nothing to consolidate below {printable(name) or '/'}"
    lines = []
    if done.objects_after:
        verb = "would make" if dry_run else "made"
        objects = f"{output.count(done.objects_after, 'object')} of {output.count(done.objects_before, 'chunk')}"
        lines.append(f"{verb} {objects} in {output.count(done.segments, 'segment')}, {output.size(done.bytes)}")
    if done.objects_after and not dry_run:
        server, client = output.size(done.bytes - done.client_bytes), output.size(done.client_bytes)
        lines.append(f"  {server} copied by the server, {client} uploaded again")
    if done.merged_chunks:
        verb = "would join" if dry_run else "joined"
        lines.append(f"{verb} {output.count(done.merged_chunks, 'chunk')} to neighbours in the same object")
    return "\n".join(lines)
