"""Define the commands that move bytes between the tiers: offload, evict, consolidate and warmup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tierfs.app.store import Store
from tierfs.base.bytes.progress import Progress
from tierfs.base.words.errors import InvalidRequest, TierfsError
from tierfs.base.words.names import printable
from tierfs.base.words.types import EntryKind
from tierfs.engine.metadata import directories
from tierfs.faces.cli import output
from tierfs.faces.cli.errors import Partial
from tierfs.faces.cli.group import command, each_command, paths_argument
from tierfs.faces.cli.options import POSITION, Size, dry_run_option
from tierfs.faces.cli.progress import perform_shown, progress_line
from tierfs.faces.cli.session import Session

if TYPE_CHECKING:
    from tierfs.tiering.offload_command import OffloadReport


@each_command("offload", "[PATH]...")
@click.option(
    "--before",
    metavar=f"OFFSET|{POSITION}",
    help="Copy only what lies before this offset of a segment, or position of a managed ledger.",
)
@click.option("--keep", type=Size(), metavar="SIZE", help="Leave the newest bytes of each segment where they are.")
@click.option("--no-wait", is_flag=True, help="Leave the work to the mount or daemon and return at once.")
def offload(session: Session, store: Store, name: str, before: str | None, keep: int | None, no_wait: bool) -> None:
    """Copy all bytes below each PATH to the cold tier; without PATH, all bytes of the store.

    On return, every byte acknowledged before the call is in the bucket and named by its journal, except those of open
    ledgers. While a mount or daemon holds the store, it does the work; Ctrl-C then ends only the wait.

    --before OFFSET makes every byte of the segment PATH before the offset cold, with the rest of the chunk that holds
    the last one. Of a managed ledger it copies the closed ledgers that lie wholly before a position, oldest first, and
    prints the position of the first entry that is not offloaded.

    --keep SIZE leaves at least the newest SIZE bytes on this disk alone: of each segment, of a stream through all its
    segments, and of each managed ledger, whose ledgers move as a whole. Chunks are not cut for it.
    """
    from tierfs.upkeep.holder.verbs import KEEP, OFFLOAD, OFFLOAD_PART, request

    options = {"--before": before, "--keep": keep, "--no-wait": no_wait or None}
    given = [option for option, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidRequest(f"{' and '.join(given)} are mutually exclusive", remedy="leave one of them out")
    if before is not None:
        _offload_before(session, store, name, before)
        return
    if keep is not None:
        _print_offloaded(session, name, perform_shown(session, store, OFFLOAD_PART, name, {KEEP: str(keep)}))
        return
    if no_wait:
        number = request(store, OFFLOAD, name)
        session.done({"path": name, "request": number}, f"request {number}; see its progress: tierfs status")
        return
    _print_offloaded(session, name, perform_shown(session, store, OFFLOAD, name, {}))


def _print_offloaded(session: Session, name: str, done: OffloadReport) -> None:
    if done.ledger_bytes:
        session.warn(f"{output.size(done.ledger_bytes)} of open ledgers stay on this disk alone until they are closed")
    already = output.size(done.already_cold_bytes)
    text = f"nothing to offload below {output.path(name)}; {already} of the local bytes are cold"
    if not done.already_cold_bytes and not done.ledger_bytes:
        text = f"nothing to offload below {output.path(name)}: it has no bytes on this disk"
    if done.objects:
        moved = f"{output.size(done.bytes)} of {output.count(done.segments, 'segment')}"
        text = f"offloaded {moved} in {output.count(done.objects, 'object')}; {already} were cold already"
    session.done({"path": name, **output.fields(done)}, text)


def _offload_before(session: Session, store: Store, name: str, before: str) -> None:
    from tierfs.engine.segments.positions import Position
    from tierfs.upkeep.holder.verbs import BEFORE, BEFORE_OFFSET, OFFLOAD_PART, OFFLOAD_PREFIX

    with store.metadata.read() as txn:
        is_segment = directories.must_find(txn, name, "segment or managed ledger").kind is EntryKind.SEGMENT
    if is_segment:
        offset = Size().convert(before, None, click.get_current_context())
        moved = perform_shown(session, store, OFFLOAD_PART, name, {BEFORE_OFFSET: str(offset)})
        _print_offloaded(session, name, moved)
        return
    try:
        position = Position.parse(before)
    except InvalidRequest as exc:
        remedy = f"{exc.remedy}; an offset is of one segment, and for all below a directory there is --keep SIZE"
        raise InvalidRequest(str(exc), remedy=remedy) from exc
    done = perform_shown(session, store, OFFLOAD_PREFIX, name, {BEFORE: str(position)})
    first = f"the first that is not is {done.first_unoffloaded}" if done.first_unoffloaded else "there is no ledger"
    text = f"offloaded {output.size(done.bytes)} of {output.count(done.ledgers, 'ledger')}; {first}"
    if not done.ledgers:
        text = f"nothing to offload in {printable(name)}: {output.count(done.already_cold, 'ledger')} cold, {first}"
    session.done({"managed_ledger": name, **output.fields(done)}, text)


@each_command("evict", "[PATH]...")
@click.option("--force", is_flag=True, help="Also evict bytes whose read priority is local-only.")
@click.option("--keep", type=Size(), metavar="SIZE", help="Leave the newest bytes of each segment on this disk.")
@dry_run_option("Show the bytes to evict, and change nothing.")
def evict(session: Session, store: Store, name: str, force: bool, keep: int | None, dry_run: bool) -> None:
    """Drop the local copies of bytes below each PATH that are safely cold; without PATH, of all such bytes.

    Bytes that are not cold are never dropped. --keep SIZE leaves at least the newest SIZE bytes, counted as by offload.
    """
    from tierfs.upkeep.holder.verbs import DRY_RUN, EVICT, EVICT_PART, FORCE, KEEP, flags

    verb, options = EVICT, dict(flags({FORCE: force, DRY_RUN: dry_run}))
    if keep is not None:
        verb, options = EVICT_PART, {**options, KEEP: str(keep)}
    done = perform_shown(session, store, verb, name, options)
    evicted = f"{output.size(done.bytes)} in {output.count(done.chunks, 'chunk')}"
    nothing = f"nothing to evict below {output.path(name)}"
    lines = [f"{'would evict' if dry_run else 'evicted'} {evicted}" if done.chunks else nothing]
    lines += [f"  kept {output.size(size)}: {printable(reason)}" for reason, size in sorted(done.reasons.items())]
    session.done({"path": name, "dry_run": dry_run, **output.fields(done)}, "\n".join(lines))


@each_command("consolidate", "[PATH]...")
@dry_run_option("Show the objects to join, and change nothing.")
def consolidate(session: Session, store: Store, name: str, dry_run: bool) -> None:
    """Join small neighbouring cold objects of each segment below each PATH; without PATH, of all segments.

    Objects whose bytes are mostly cut off are copied without them. The server copies the bytes where it can;
    each new object is read back once and checked. Old objects are deleted after the grace period, so that open files
    stay readable. The policy object_bytes sets the size of objects.
    """
    from tierfs.upkeep.holder.verbs import CONSOLIDATE, DRY_RUN, flags

    done = perform_shown(session, store, CONSOLIDATE, name, flags({DRY_RUN: dry_run}))
    lines = []
    if done.objects_after:
        objects = f"{output.count(done.objects_after, 'object')} of {output.count(done.objects_before, 'chunk')}"
        made = f"{objects} in {output.count(done.segments, 'segment')}, {output.size(done.bytes)}"
        lines.append(f"{'would make' if dry_run else 'made'} {made}")
    if done.objects_after and not dry_run:
        server, client = output.size(done.bytes - done.client_bytes), output.size(done.client_bytes)
        lines.append(f"  {server} copied by the server, {client} uploaded again")
    if done.merged_chunks:
        joined = f"{output.count(done.merged_chunks, 'chunk')} to neighbours in the same object"
        lines.append(f"{'would join' if dry_run else 'joined'} {joined}")
    text = "\n".join(lines) or f"nothing to consolidate below {output.path(name)}"
    session.done({"path": name, "dry_run": dry_run, **output.fields(done)}, text)


@command("warmup")
@paths_argument(metavar="PATH...")
def warmup(session: Session, paths: tuple[str, ...]) -> None:
    """Fill the disk cache with the cold bytes at or below each PATH.

    If a mount has the cache, this command asks the mount to fill it; otherwise this process fills it.
    Bytes in the cache are not fetched again. If not everything fits, only the beginning is fetched.
    """
    from tierfs.app.fill_cache import warm_up

    done_bytes = 0
    with session.open_store() as store, progress_line(session) as show:

        def report(progress: Progress) -> None:
            nonlocal done_bytes
            done_bytes = progress.done_bytes
            show(progress)

        names = [name for path in paths for name in store.names_of(path)]
        try:
            done = warm_up(store, names, report)
        except (TierfsError, KeyboardInterrupt) as exc:
            if not done_bytes:
                raise
            progress = f"{output.size(done_bytes)} were warmed up"
            raise Partial(exc, progress, remedy="to continue, run it again", warmed_bytes=done_bytes) from exc
    if done.left_out_bytes:
        cold, fit = output.size(done.cold_bytes), output.size(done.cold_bytes - done.left_out_bytes)
        session.warn(f"{cold} are cold, and {fit} of it fit into the disk cache: only the beginning was warmed up")
    if done.lost_bytes:
        session.warn(f"{done.lost_bytes} bytes are lost; to locate them: tierfs info --map SEGMENT")
    places, skipped = ", ".join(map(output.path, names)), f"{output.size(done.local_bytes)} on the local disk"
    text = f"nothing to warm up at {places}: no cold bytes, {skipped}"
    if done.cold_bytes:
        cached = f"the disk cache holds {output.size(done.held_bytes)} of {places}"
        through = f", filled by the mount at {printable(done.mountpoint)}" if done.mountpoint else ""
        text = f"{cached}, {output.size(done.already_held_bytes)} of it from before{through}; skipped {skipped}"
    session.done({"paths": names, **output.fields(done)}, text)
