"""tierfs concat.

tierfs truncate.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tierfs.cli import output
from tierfs.cli.group import command
from tierfs.cli.options import Size, ask, yes_option
from tierfs.cli.session import Session
from tierfs.names import join, printable, split

if TYPE_CHECKING:
    from tierfs.segments.concat import Concatenation
    from tierfs.segments.truncate import Truncation


@command("concat")
@click.argument("target")
@click.argument("source")
@yes_option
def concat(session: Session, target: str, source: str, yes: bool) -> None:
    """Append all bytes of the sealed segment SOURCE to TARGET; the name SOURCE disappears.

    No byte is copied or moved, wherever it lies.
    """
    from tierfs.app import verbs
    from tierfs.segments import concat as joining

    with session.open_store() as store:
        into, taken = (join(split(store.segment_of_path(name))) for name in (target, source))
        with store.metadata.read() as txn:
            plan = joining.plan(txn, into, taken)
        if not yes:
            size = output.size(plan.range.length_bytes)
            ask("concat", f"append {size} of {printable(taken)} to {printable(into)} and remove that name?")
        done = store.engine.concat(into, taken)
        late = verbs.settle(store)
    if late is not None:
        session.note(f"the bucket will be told later: {late}")
    session.done(_concat_data(into, taken, done), _describe_concat(into, taken, done))


def _describe_concat(target: str, source: str, done: Concatenation) -> str:
    span = done.range
    if not span:
        return f"{printable(source)} was empty and is removed; {printable(target)} is as it was"
    size, chunks = output.size(span.length_bytes), output.count(done.chunks, "chunk")
    return f"appended {printable(source)} to {printable(target)}: {size} in {chunks}, bytes {span.start} to {span.end}"


def _concat_data(target: str, source: str, done: Concatenation) -> dict[str, object]:
    span = done.range
    return {"target": target, "source": source, "start": span.start, "end": span.end, "chunks": done.chunks}


@command("truncate")
@click.argument("segment")
@click.option("--before", type=Size(), required=True, metavar="OFFSET", help="First one to keep, like 4096 or 64MiB.")
@click.option("--dry-run", is_flag=True, help="Only tell what would go.")
@yes_option
def truncate(session: Session, segment: str, before: int, dry_run: bool, yes: bool) -> None:
    """Drop the bytes of a segment below OFFSET; those that stay keep their offsets.

    Chunks with nothing but dropped bytes go: local files at once, cold objects after a grace period. In
    mounts the name stands for a new file that begins at OFFSET, as after log rotation.
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
        done = verbs.truncate_head(store, name, before)
        late = verbs.settle(store)
    if late is not None:
        session.note(f"the bucket will be told later: {late}")
    session.done(_truncate_data(name, done, done=True), _describe_truncate("dropped", name, done))


def _describe_truncate(verb: str, name: str, what: Truncation) -> str:
    if not what.bytes:
        return f"nothing to do: {printable(name)} begins at {what.start_offset} already"
    local = f"{output.count(what.local_chunks, 'chunk')} of {output.size(what.local_bytes)} local"
    cold = f"{output.count(what.cold_chunks, 'chunk')} of {output.size(what.cold_bytes)} cold"
    return f"{verb} {output.size(what.bytes)} of {printable(name)}, up to {what.start_offset}: {local}, {cold}"


def _truncate_data(name: str, what: Truncation, *, done: bool) -> dict[str, object]:
    return {"segment": name, "truncated": done and bool(what.bytes), **asdict(what)}
