"""Define tierfs seal, unseal, concat and truncate."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import output
from tierfs.cli.group import command, each, path_argument, paths_argument
from tierfs.cli.options import Size, ask, dry_run_option, yes_option
from tierfs.cli.progress import progress_line
from tierfs.cli.session import Session
from tierfs.names import join, printable, split
from tierfs.parallel import doing

if TYPE_CHECKING:
    from tierfs.segments.concat import Concatenation
    from tierfs.segments.truncate import Truncation


@command("seal")
@paths_argument("segments", metavar="SEGMENT...")
def seal(session: Session, segments: tuple[str, ...]) -> None:
    """Seal segments: they accept no more bytes. Repeating it succeeds."""
    from tierfs.segments import stat

    def work(name: str) -> None:
        with store.metadata.read() as txn:
            before = stat.stat(txn, name)
        record = store.engine.seal(name)
        already = before.record.sealed
        data = {"segment": before.name, "length": record.length, "already_sealed": already}
        state = "is already sealed" if already else "is sealed"
        session.done(data, f"{printable(before.name)} {state}: {output.size(record.length)}")

    with session.open_store() as store:
        each(session, store, segments, work)


@command("unseal")
@paths_argument("segments", metavar="SEGMENT...")
def unseal(session: Session, segments: tuple[str, ...]) -> None:
    """Reopen sealed segments: they accept bytes as before. Repeating it succeeds.

    In mounts the name becomes a new file; a file that is open there never grows.
    """

    def work(name: str) -> None:
        record, changed = store.engine.unseal(name)
        data = {"segment": name, "length": record.length, "already_open": not changed}
        state = "is open again" if changed else "is already open"
        session.done(data, f"{printable(name)} {state}: {output.size(record.length)}")

    with session.open_store() as store:
        each(session, store, segments, work)


@command("concat")
@path_argument("target")
@path_argument("source")
@yes_option
def concat(session: Session, target: str, source: str, yes: bool) -> None:
    """Append all bytes of the sealed segment SOURCE to TARGET, and remove the name SOURCE.

    No byte is copied or moved, in either tier.
    """
    from tierfs.app import verbs
    from tierfs.segments import concat as joining

    with session.open_store() as store:
        target, source = (join(split(store.segment_of_path(name))) for name in (target, source))
        with store.metadata.read() as txn:
            plan = joining.plan(txn, target, source)
        if not yes:
            size = output.size(plan.range.length_bytes)
            ask(
                "concat",
                f"append {size} of {printable(source)} to {printable(target)}, and remove {printable(source)}?",
            )
        with progress_line(session) as show:
            show(doing("joining chunks"))
            done = store.engine.concat(target, source)
            unpublished = verbs.settle(store, show)
    session.note_unpublished(unpublished)
    session.done(_concat_data(target, source, done), _describe_concat(target, source, done))


def _describe_concat(target: str, source: str, done: Concatenation) -> str:
    span = done.range
    if not span:
        return f"removed {printable(source)}, which was empty; {printable(target)} is unchanged"
    size, chunks = output.size(span.length_bytes), output.count(done.chunks, "chunk")
    return f"appended {printable(source)} to {printable(target)}: {size} in {chunks}, bytes {span.start} to {span.end}"


def _concat_data(target: str, source: str, done: Concatenation) -> dict[str, object]:
    span = done.range
    return {"target": target, "source": source, "start": span.start, "end": span.end, "chunks": done.chunks}


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
            plan = truncating.plan(txn, name, before)
        if dry_run:
            session.result(_truncate_data(name, plan, done=False), _describe_truncate("would drop", name, plan))
            return
        if not plan.bytes:
            session.done(_truncate_data(name, plan, done=True), _describe_truncate("dropped", name, plan))
            return
        if not yes:
            ask("truncate", _describe_truncate("drop", name, plan) + "?")
        with progress_line(session) as show:
            show(doing("dropping chunks"))
            done = verbs.truncate_head(store, name, before, show)
            unpublished = verbs.settle(store, show)
    session.note_unpublished(unpublished)
    session.done(_truncate_data(name, done, done=True), _describe_truncate("dropped", name, done))


def _describe_truncate(verb: str, name: str, cut: Truncation) -> str:
    if not cut.bytes:
        return f"nothing to do: {printable(name)} already begins at {cut.start_offset}"
    local = f"{output.count(cut.local_chunks, 'chunk')} of {output.size(cut.local_bytes)} local"
    cold = f"{output.count(cut.cold_chunks, 'chunk')} of {output.size(cut.cold_bytes)} cold"
    return f"{verb} {output.size(cut.bytes)} of {printable(name)}, up to {cut.start_offset}: {local}, {cold}"


def _truncate_data(name: str, cut: Truncation, *, done: bool) -> dict[str, object]:
    return {"segment": name, "truncated": done and bool(cut.bytes), **asdict(cut)}
