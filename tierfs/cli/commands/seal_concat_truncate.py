"""Define tierfs seal, unseal, concat and truncate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tierfs.app.store import Store
from tierfs.cli import output
from tierfs.cli.group import command, each_command, path_argument
from tierfs.cli.options import Size, ask, dry_run_option, yes_option
from tierfs.cli.progress import changing
from tierfs.cli.session import Session
from tierfs.names import join, printable, split

if TYPE_CHECKING:
    from tierfs.segments.truncate import Truncation


@each_command("seal", "SEGMENT...")
def seal(session: Session, store: Store, name: str) -> None:
    """Seal segments: they accept no more bytes. Repeating it succeeds."""
    from tierfs.segments import stat

    with store.metadata.read() as txn:
        before = stat.stat(txn, name)
    record = store.engine.seal(name)
    already = before.record.sealed
    data = {"segment": before.name, "length": record.length, "already_sealed": already}
    state = "is already sealed" if already else "is sealed"
    session.done(data, f"{printable(before.name)} {state}: {output.size(record.length)}")


@each_command("unseal", "SEGMENT...")
def unseal(session: Session, store: Store, name: str) -> None:
    """Reopen sealed segments: they accept bytes as before. Repeating it succeeds.

    In mounts the name becomes a new file; a file that is open there never grows.
    """
    record, changed = store.engine.unseal(name)
    data = {"segment": name, "length": record.length, "already_open": not changed}
    state = "is open again" if changed else "is already open"
    session.done(data, f"{printable(name)} {state}: {output.size(record.length)}")


@command("concat")
@path_argument("target")
@path_argument("source")
@yes_option
def concat(session: Session, target: str, source: str, yes: bool) -> None:
    """Append all bytes of the sealed segment SOURCE to TARGET, and remove the name SOURCE.

    No byte is copied or moved, in either tier.
    """
    from tierfs.segments import concat as joining

    with session.open_store() as store:
        target, source = (join(split(store.segment_of_path(name))) for name in (target, source))
        to, of = printable(target), printable(source)
        with store.metadata.read() as txn:
            plan = joining.plan(txn, target, source)
        if not yes:
            ask("concat", f"append {output.size(plan.range.length_bytes)} of {of} to {to}, and remove {of}?")
        with changing(session, store, "joining chunks"):
            done = store.engine.concat(target, source)
    span = done.range
    text = f"removed {of}, which was empty; {to} is unchanged"
    if span:
        size, chunks = output.size(span.length_bytes), output.count(done.chunks, "chunk")
        text = f"appended {of} to {to}: {size} in {chunks}, bytes {span.start} to {span.end}"
    session.done({"target": target, "source": source, **output.fields(span), "chunks": done.chunks}, text)


@command("truncate")
@path_argument("segment")
@click.option(
    "--before", type=Size(), required=True, metavar="OFFSET", help="First offset to keep, like 4096 or 64MiB."
)
@dry_run_option("Show the bytes to drop, and change nothing.")
@yes_option
def truncate(session: Session, segment: str, before: int, dry_run: bool, yes: bool) -> None:
    """Drop the bytes of a segment before OFFSET; the other bytes keep their offsets.

    Chunks with only dropped bytes are deleted: local files at once, cold objects after a grace period. Dropped bytes
    are not kept in the trash. In mounts the name becomes a new file that begins at OFFSET, as after log rotation.
    """
    from tierfs.app import verbs
    from tierfs.segments import truncate as truncating

    with session.open_store() as store:
        name = join(split(store.segment_of_path(segment)))
        with store.metadata.read() as txn:
            cut = truncating.plan(txn, name, before)
        if dry_run:
            data = {"segment": name, "truncated": False, **output.fields(cut)}
            session.result(data, _described("would drop", name, cut))
            return
        if cut.bytes:
            if not yes:
                ask("truncate", _described("drop", name, cut) + "?")
            with changing(session, store, "dropping chunks") as show:
                cut = verbs.truncate_head(store, name, before, show)
    data = {"segment": name, "truncated": bool(cut.bytes), **output.fields(cut)}
    session.done(data, _described("dropped", name, cut))


def _described(verb: str, name: str, cut: Truncation) -> str:
    if not cut.bytes:
        return f"nothing to do: {printable(name)} already begins at {cut.start_offset}"
    local = f"{output.count(cut.local_chunks, 'chunk')} of {output.size(cut.local_bytes)} local"
    cold = f"{output.count(cut.cold_chunks, 'chunk')} of {output.size(cut.cold_bytes)} cold"
    return f"{verb} {output.size(cut.bytes)} of {printable(name)}, up to {cut.start_offset}: {local}, {cold}"
